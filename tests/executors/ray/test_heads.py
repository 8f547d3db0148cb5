"""Heads that torchyard starts, with a program in Ray's place; tests/ray has real ones."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventually import eventually
from torchyard.base.errors import DatabaseUnreachable
from torchyard.executors.ray.head_nodes import Heads
from torchyard.executors.ray.ray_environment import RayEnvironment, RayVersion
from torchyard.shared import processes

# Listens at its port, as a head does, and keeps what it was started with and what it found.
_PROGRAM = """#!{python}
import os, pathlib, socket, sys, time
options = dict(word.split("=", 1) for word in sys.argv if "=" in word)
place = pathlib.Path(options["--temp-dir"])
with open(place / "starts", "a") as file:
    print(os.getpid(), (place / "ray_current_cluster").exists(), file=file)
(place / "ray_current_cluster").write_text("127.0.0.1:1")
host, port = options["--node-ip-address"], int(options["--port"])
listener = socket.create_server((host, port))
time.sleep(600)
"""
KEY = "default.lab"


@pytest.fixture
def environment(tmp_path: Path) -> RayEnvironment:
    program = tmp_path / "ray" / "bin" / "ray"
    program.parent.mkdir(parents=True)
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return RayEnvironment(tmp_path / "ray", RayVersion())


def heads_of(tmp_path: Path, environment: RayEnvironment) -> Heads:
    """As a server that has just started has them."""
    return Heads(tmp_path / "heads", os.environ, lambda: environment, lambda: "127.0.0.1")


def sessions(tmp_path: Path) -> Path:
    folder = tmp_path / "heads" / KEY
    own = folder / "s"
    return own if own.exists() else Path((folder / "sessions").read_text())


def starts(tmp_path: Path) -> list[tuple[int, str]]:
    """The process of each start, and whether it found Ray's note of a cluster; none once all that
    a head leaves was removed with its cluster.
    """
    if not (tmp_path / "heads" / KEY).exists():
        return []
    socket_path = sessions(tmp_path)
    lines = [line.split() for line in (socket_path / "starts").read_text().splitlines()]
    return [(int(pid), note) for pid, note in lines]


@pytest.fixture
def heads(tmp_path: Path, environment: RayEnvironment) -> Iterator[Heads]:
    made = heads_of(tmp_path, environment)
    yield made
    made.stop(KEY)
    for pid, _ in starts(tmp_path):
        assert processes.start_time(pid) == 0, "a head is left"


def test_a_head_is_found_again_by_the_next_server(
    heads: Heads, tmp_path: Path, environment: RayEnvironment
) -> None:
    head = heads.ensure(KEY)
    following = heads_of(tmp_path, environment)
    assert following.find(KEY) == head
    assert following.ensure(KEY) == head
    assert len(starts(tmp_path)) == 1


def test_a_head_is_at_the_address_by_which_nodes_reach_the_server(
    heads: Heads, tmp_path: Path
) -> None:
    first = heads.ensure(KEY)
    assert first.host == "127.0.0.1"
    moved = heads.ensure(KEY, "127.0.0.2")
    assert moved.host == "127.0.0.2" and heads.ensure(KEY) == moved
    ((before, _), (now, _)) = starts(tmp_path)
    assert processes.start_time(before) == 0 and processes.start_time(now)
    # Kept for later starts, while this machine has it.
    heads.stop(KEY)
    assert heads.ensure(KEY).host == "127.0.0.2"
    heads.stop(KEY)
    (tmp_path / "heads" / KEY / "address").write_text("192.0.2.1")
    assert heads.ensure(KEY).host == "127.0.0.1"


def test_a_head_whose_server_died_as_it_started_it_is_found_again(
    heads: Heads, tmp_path: Path, environment: RayEnvironment
) -> None:
    head = heads.ensure(KEY)
    # All that a server had written when it was killed between the start and its record.
    (tmp_path / "heads" / KEY / "head.json").unlink()
    following = heads_of(tmp_path, environment)
    assert following.find(KEY) is None
    assert following.ensure(KEY) == head
    assert following.find(KEY) == head
    ((pid, _),) = starts(tmp_path)
    record = json.loads((tmp_path / "heads" / KEY / "head.json").read_text())
    assert record["pid"] == pid


def test_such_a_head_of_a_cluster_that_is_gone_is_ended(
    heads: Heads, tmp_path: Path, environment: RayEnvironment
) -> None:
    heads.ensure(KEY)
    (tmp_path / "heads" / KEY / "head.json").unlink()
    following = heads_of(tmp_path, environment)
    following.keep(lambda: {KEY})
    ((pid, _),) = starts(tmp_path)
    assert processes.start_time(pid)
    left = sessions(tmp_path)
    following.keep(lambda: ())
    heads._has_ended(KEY, pid, processes.start_time(pid), 60)
    assert processes.start_time(pid) == 0
    eventually(lambda: not (tmp_path / "heads" / KEY).exists(), "its folder is removed")
    assert not left.exists() and not left.parent.exists()


def test_a_head_that_starts_again_finds_no_note_of_the_one_before(
    heads: Heads, tmp_path: Path
) -> None:
    heads.ensure(KEY)
    heads.stop(KEY)
    heads.ensure(KEY)
    assert [note for _, note in starts(tmp_path)] == ["False", "False"]


def test_a_head_ends_when_its_cluster_goes_later(
    heads: Heads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchyard.executors.ray.head_nodes._KEEP_EVERY_S", 0.1)
    keys = {KEY}
    calls: list[int] = []

    def keys_in_use() -> set[str]:
        calls.append(1)
        if len(calls) == 2:
            raise DatabaseUnreachable("it does not answer", "")
        return set(keys)

    heads.ensure(KEY)
    ((pid, _),) = starts(tmp_path)
    heads.start_keeping(keys_in_use)
    try:
        eventually(lambda: len(calls) >= 4, "some looks")
        assert processes.start_time(pid)
        keys.clear()
        eventually(lambda: heads.find(KEY) is None, "the end of the head")
        eventually(lambda: not (tmp_path / "heads" / KEY).exists(), "its folder is removed")
        assert processes.start_time(pid) == 0
    finally:
        heads.close()


def test_a_head_is_not_ended_when_its_cluster_is_made_again(heads: Heads, tmp_path: Path) -> None:
    head = heads.ensure(KEY)
    calls: list[int] = []

    def keys_in_use() -> set[str]:
        calls.append(1)
        return set() if len(calls) == 1 else {KEY}

    heads.keep(keys_in_use)
    eventually(lambda: len(calls) >= 2, "a second look")
    assert len(calls) == 2
    assert heads.ensure(KEY) == head
    assert len(starts(tmp_path)) == 1


def test_a_start_while_the_head_before_is_ended_keeps_its_own_records(
    heads: Heads, tmp_path: Path
) -> None:
    for _ in range(5):
        heads.ensure(KEY)
        ending = threading.Thread(target=heads.stop, args=(KEY,))
        ending.start()
        # Either the one before, which is then ended, or the next one.
        heads.ensure(KEY)
        ending.join()
    heads.ensure(KEY)
    record = json.loads((tmp_path / "heads" / KEY / "head.json").read_text())
    running = [pid for pid, _ in starts(tmp_path) if processes.start_time(pid)]
    assert running == [record["pid"]]
