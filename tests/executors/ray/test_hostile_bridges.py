"""A bridge whose cluster is in hostile hands: what it says is read, and nothing of it is run."""

from __future__ import annotations

import base64
import json
import os
import pickle
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from torchyard.executors.executor import EngineUnreachable
from torchyard.executors.ray import bridge_answers
from torchyard.executors.ray.bridge import Bridge, ClusterAddress
from torchyard.executors.ray.programs import OwnPrograms
from torchyard.executors.ray.ray_environment import RayEnvironment, RayEnvironments, RayVersion
from torchyard.shared import processes

# Says that it is ready, then answers whatever is asked with the same bytes.
_PROGRAM = """#!{python}
import base64, json, os, sys
sys.stdin.readline()
for stage in ("imported", "found", "ready"):
    print(json.dumps({{"stage": stage}}), flush=True)
open({note!r}, "w").write(str(os.getpid()))
for line in sys.stdin:
    answer = base64.b64decode({answer!r}).replace(b"NUMBER", str(json.loads(line)["id"]).encode())
    sys.stdout.buffer.write(answer)
    sys.stdout.flush()
"""


class Ready(RayEnvironments):
    """Ray's environment is there, with another program for Python."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "uv", {})
        self.folder = folder

    def get(self, version: RayVersion) -> RayEnvironment:
        return RayEnvironment(self.folder, version)


class Effect:
    """A pickle that makes a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> Any:
        return (open, (str(self._file), "w"))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def bridge_that_says(answer: bytes, folder: Path, listener: socket.socket) -> Bridge:
    program = folder / "bin" / "python"
    program.parent.mkdir()
    note, encoded = str(folder / "pid"), base64.b64encode(answer).decode()
    program.write_text(_PROGRAM.format(python=sys.executable, note=note, answer=encoded))
    program.chmod(0o755)
    address = ClusterAddress(f"127.0.0.1:{listener.getsockname()[1]}", "", RayVersion())
    return Bridge(address, "s", Ready(folder), os.environ, folder / "logs", OwnPrograms(folder), "")


def result(body: Any) -> bytes:
    return b'{"id": NUMBER, "result": %b}\n' % json.dumps(body).encode()


NODE = {"state": "running", "address": "10.0.0.2", "devices": []}


@pytest.mark.parametrize(
    "answer",
    [
        b"\n",
        b"[" * 100_000 + b"\n",
        b'{"id": "1", "result": {}}\n',
        b"{}\n",
        result([]),
        result({"a": {}}),
        result({"a": {"nodes": [{"state": "gone"}]}}),
        result({"a": {"nodes": [{"state": "lost"}]}}),
        result({"a": {"nodes": [{**NODE, "address": ["10.0.0.2"]}]}}),
        result({"a": {"nodes": [{"state": "exited", "code": "0"}]}}),
        result({"a": {"nodes": [NODE], "waiting": {"group": "g"}}}),
        result({"a": {"nodes": [{**NODE, "address": "x" * 100_000}]}}),
    ],
    ids=lambda answer: answer[:60].decode(),
)
def test_what_no_bridge_says_ends_it_and_is_no_answer(
    tmp_path: Path, listener: socket.socket, answer: bytes
) -> None:
    bridge = bridge_that_says(answer, tmp_path, listener)
    with pytest.raises(EngineUnreachable):
        bridge.ask("status", 60, 60, attempts=["a"])
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: not processes.start_time(pid), "the bridge has ended")
    bridge.close()


def test_a_pickle_in_an_answer_has_no_effect(tmp_path: Path, listener: socket.socket) -> None:
    file = tmp_path / "effect"
    bridge = bridge_that_says(pickle.dumps(Effect(file), 0) + b"\n", tmp_path, listener)
    with pytest.raises(EngineUnreachable):
        bridge.ask("status", 60, 60, attempts=["a"])
    bridge.close()
    assert not file.exists()


def test_a_line_has_a_limit(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_answers, "MOST_BYTES", 1000)
    bridge = bridge_that_says(b"x" * 5000, tmp_path, listener)
    with pytest.raises(EngineUnreachable):
        bridge.ask("status", 60, 60, attempts=["a"])
    bridge.close()


def test_what_a_bridge_says_passes(tmp_path: Path, listener: socket.socket) -> None:
    body = {"a": {"nodes": [NODE]}, "b": {"unknown": True}}
    bridge = bridge_that_says(result(body), tmp_path, listener)
    assert bridge.ask("status", 60, 60, attempts=["a", "b"]) == body
    bridge.close()
