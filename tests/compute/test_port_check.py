"""A port that an agent listens at, tried as a server tries it."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.compute import port_check
from torchyard.compute.port_check import Probe
from torchyard.node_agent import port_probe

HERE = "127.0.0.1"


def test_a_machine_that_answers_is_reached() -> None:
    with port_probe.answering(HERE) as sent:
        probe = port_check.read({"probe": sent})
        assert probe is not None and (probe.first, probe.last) == port_probe.port_range()
        port_check.check("lab", HERE, probe)
        port_check.check("lab", HERE, probe)


def test_a_closed_port_is_named_with_what_to_open() -> None:
    with port_probe.answering(HERE) as sent:
        pass
    with pytest.raises(Conflict) as refused:
        port_check.check("lab", HERE, Probe(sent["port"], sent["word"], 32768, 60999))
    assert refused.value.code == "ports_blocked"
    assert f"can't connect to `lab` at {HERE}, port {sent['port']}: " in refused.value.message
    assert "ports 32768 to 60999 of `lab`" in refused.value.hint


def test_another_program_is_not_taken_for_the_machine() -> None:
    with socket.create_server((HERE, 0)) as other, port_probe.answering(HERE) as sent:
        probe = Probe(other.getsockname()[1], sent["word"], 1, 2)
        other.settimeout(10)

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Conflict, match="something else answers there"):
            port_check.check("lab", HERE, probe)
        thread.join()


def test_an_agent_without_a_port_is_not_tried() -> None:
    assert port_check.read({"address": HERE}) is None


@pytest.mark.parametrize(
    "probe",
    [
        "x",
        {},
        {"port": 0, "word": "0" * 32, "range": [1, 2]},
        {"port": 70000, "word": "0" * 32, "range": [1, 2]},
        {"port": True, "word": "0" * 32, "range": [1, 2]},
        {"port": 9, "word": "short", "range": [1, 2]},
        {"port": 9, "word": "0" * 32, "range": [1]},
        {"port": 9, "word": "0" * 32, "range": {"1": 2}},
    ],
)
def test_what_is_no_port_is_refused(probe: Any) -> None:
    with pytest.raises(InvalidInput, match="`probe` is not a port"):
        port_check.read({"probe": probe})
