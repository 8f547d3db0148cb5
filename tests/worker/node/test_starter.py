"""What an engine tells a node on its way in."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchyard.shared.connection import Unreachable
from torchyard.shared.node_start import NodeStart
from torchyard.shared.plan import DevicePlan
from torchyard.worker.node import starter

START = NodeStart("a1", ["https://server:1"], "token", "0" * 64)


def _arguments(
    devices: Any = "", until_eof: str = "", start: NodeStart = START
) -> starter.Arguments:
    reader, writer = os.pipe()
    os.write(writer, start.to_json().encode())
    os.close(writer)
    words = ["--start", str(reader), "--node", "1", "--address", "10.0.0.2"]
    words += ["--devices", devices if isinstance(devices, str) else json.dumps(devices)]
    return starter.arguments([*words, "--until-eof", until_eof, "--die-with-parent", ""])


def test_the_start_comes_by_a_descriptor() -> None:
    arguments = _arguments(until_eof="1")
    assert arguments.start == START
    assert (arguments.node, arguments.address) == (1, "10.0.0.2")
    assert arguments.until_eof and not arguments.die_with_parent


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ("", ()),
        ([0, "3"], (DevicePlan("nvidia", 0, ""), DevicePlan("nvidia", 3, ""))),
        (["GPU-12ab"], (DevicePlan("nvidia", -1, "GPU-12ab"),)),
        ([{"kind": "amd", "index": 2, "uuid": "x"}], (DevicePlan("amd", 2, "x"),)),
    ],
)
def test_gpus_come_as_the_engine_calls_them(devices: Any, expected: tuple[DevicePlan, ...]) -> None:
    assert _arguments(devices).devices == expected


def test_other_words_are_refused() -> None:
    with pytest.raises(SystemExit, match="bootstrap"):
        starter.arguments(["--start", "0", "--nonsense", "1"])


def test_an_engine_that_reads_no_more_ends_nothing() -> None:
    program = (
        "import os; from torchyard.worker.node import starter\n"
        "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 2)\n"
        "for _ in range(2): starter._say('the node is told to end')\n"
        "print('goes on')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, b"goes on\n")


def test_a_node_that_can_not_reach_the_server_names_it_and_says_what_to_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(starter, "_REACH_S", 0.0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        start = NodeStart("a1", [url], "token", "0" * 64, folder=str(tmp_path))
        with pytest.raises(starter._Unusable) as caught:
            starter._Starter(_arguments(start=start), {})._plan()
    assert f"{url}: [Errno 111]" in caught.value.message
    assert "open this TCP port" in caught.value.hint and f"curl -k {url}/livez" in caught.value.hint


def test_a_node_waits_longer_for_a_server_whose_machine_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(starter, "_REACH_S", 0.0)
    start = NodeStart("a1", ["http://192.0.2.1:1"], "token", "0" * 64, folder=str(tmp_path))
    made = starter._Starter(_arguments(start=start), {})
    errors: list[Exception] = [ConnectionRefusedError(), ConnectionRefusedError(), TimeoutError()]

    def call(method: str, path: str) -> None:
        raise Unreachable("no answer", False) from errors.pop(0)

    monkeypatch.setattr(made._link, "call", call)
    with pytest.raises(starter._Unusable, match="can't reach the server"):
        made._plan()
    assert not errors
