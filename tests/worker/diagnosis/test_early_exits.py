"""A rank that exited with code 0 while others waited for it is the cause of their failures."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchyard.shared.failures import Failure
from torchyard.worker.diagnosis import diagnosis
from torchyard.worker.diagnosis.context import DiagnosisContext
from torchyard.worker.launch.ranks import Rank, RankExit
from torchyard.worker.system.memory_kills import MemoryKills

LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:41216"
TIMED_OUT = "RuntimeError: Timed out waiting 300000ms for recv operation to complete"
AT = 1_750_000_000.0


def _exit(folder: Path, rank: int, code: int, after_s: float, log: str = "") -> RankExit:
    file = folder / f"{rank}.txt"
    file.write_text(log)
    at, stop_requested = AT + after_s, False
    log_name = f"user_logs/std_log_process_{rank}.txt"
    return RankExit(Rank(rank, rank, file, log_name), code, 0, 100 + rank, at, 0, stop_requested)


def _root_cause(folder: Path, *exits: RankExit) -> Failure:
    context = DiagnosisContext(0, True, folder, folder / "errors", MemoryKills())
    failure = diagnosis.root_cause(exits, context, AT + 60)
    assert failure is not None
    return failure


@pytest.mark.parametrize("error", [LOST, TIMED_OUT])
def test_the_rank_that_exited_first_is_named(tmp_path: Path, error: str) -> None:
    failure = _root_cause(
        tmp_path,
        _exit(tmp_path, 2, 0, 1.0),
        _exit(tmp_path, 1, 0, 2.0),
        _exit(tmp_path, 0, 1, 3.0, error),
    )
    assert failure.message.startswith(
        "rank 2 on node 0 exited with code 0 at 15:06:41 UTC, while other ranks still waited for "
        "it: rank 0 on node 0 exited with code 1"
    )
    assert "fewer batches" in failure.hint
    assert failure.details["early_exit"]["rank"] == 2
    # A root cause on another node still comes before it.
    assert failure.details["consequence"]


def _leave(folder: Path, of_rank: int, pid: int, parent: int, rank: int, after_s: float) -> None:
    records = folder / "errors" / f"rank-{of_rank}"
    records.mkdir(parents=True, exist_ok=True)
    file = records / f"{pid}.left"
    file.write_text(f"{rank} {parent}")
    os.utime(file, (AT + after_s, AT + after_s))


def _record(folder: Path, of_rank: int, pid: int, parent: int, rank: int, after_s: float) -> None:
    """What the Python of a rank writes down that lost its connection."""
    title, _, message = LOST.partition(": ")
    records = folder / "errors" / f"rank-{of_rank}"
    records.mkdir(parents=True, exist_ok=True)
    body: dict[str, Any] = {
        "kind": "exception",
        "type": title,
        "message": message,
        "traceback": LOST,
    }
    body |= {"at": AT + after_s, "started": AT, "pid": pid, "parent": parent, "rank": str(rank)}
    body |= {"status": None, "said": None, "callers": [], "world_size": "2"}
    (records / f"{pid}.json").write_text(json.dumps(body))


@pytest.mark.parametrize("stop_requested", [False, True])
def test_a_rank_that_has_left_is_named_while_its_process_still_ends(
    tmp_path: Path, stop_requested: bool
) -> None:
    _leave(tmp_path, 1, pid=101, parent=1, rank=1, after_s=1.0)
    _record(tmp_path, 0, pid=100, parent=1, rank=0, after_s=1.1)
    exits = [_exit(tmp_path, 0, 1, 2.0, LOST), _exit(tmp_path, 1, 0, 3.0)]
    exits[1] = replace(exits[1], stop_requested=stop_requested)
    failure = _root_cause(tmp_path, *exits)
    assert failure.message.startswith("rank 1 on node 0 exited with code 0 at 15:06:41 UTC, while ")


def test_below_a_launcher_the_sibling_that_has_left_is_named(tmp_path: Path) -> None:
    _record(tmp_path, 0, pid=200, parent=100, rank=0, after_s=1.1)
    _leave(tmp_path, 0, pid=201, parent=100, rank=1, after_s=1.0)
    _leave(tmp_path, 0, pid=202, parent=200, rank=5, after_s=0.5)  # a program of rank 0's
    context = DiagnosisContext(0, False, tmp_path, tmp_path / "errors", MemoryKills())
    failure = diagnosis.root_cause([_exit(tmp_path, 0, 1, 2.0, LOST)], context, AT + 60)
    assert failure is not None and failure.code == "peer_lost"
    assert failure.message.startswith("rank 1 on node 0 exited with code 0 at 15:06:41 UTC, while ")


def test_a_node_says_which_of_its_ranks_left_first(tmp_path: Path) -> None:
    _leave(tmp_path, 0, pid=201, parent=100, rank=3, after_s=2.0)
    _leave(tmp_path, 0, pid=202, parent=100, rank=2, after_s=1.0)
    context = DiagnosisContext(1, True, tmp_path, tmp_path / "errors", MemoryKills())
    launcher = replace(_exit(tmp_path, 0, 143, 5.0), stop_requested=True)
    assert diagnosis.first_early_exit([launcher], context, AT + 4) == {
        "rank": 2,
        "node": 1,
        "exit_code": 0,
        "at": "2025-06-15T15:06:41.000000Z",
    }
    assert diagnosis.first_early_exit([launcher], context, AT) is None


def test_an_error_of_its_own_stays_the_cause(tmp_path: Path) -> None:
    failure = _root_cause(
        tmp_path,
        _exit(tmp_path, 1, 0, 1.0),
        _exit(tmp_path, 0, 1, 2.0, "ValueError: bad sample 17"),
    )
    assert "early_exit" not in failure.details
    assert failure.message.startswith("rank 0 on node 0")


def test_a_rank_that_exited_afterwards_is_not_the_cause(tmp_path: Path) -> None:
    failure = _root_cause(tmp_path, _exit(tmp_path, 0, 1, 1.0, LOST), _exit(tmp_path, 1, 0, 2.0))
    assert failure.message.startswith("rank 0 on node 0")


@pytest.mark.parametrize(("after_s", "is_told"), [(0.9, True), (-60.0, False)])
def test_the_error_that_a_rank_hid_when_it_left_is_told(
    tmp_path: Path, after_s: float, is_told: bool
) -> None:
    _leave(tmp_path, 1, pid=101, parent=1, rank=1, after_s=1.0)
    _record(tmp_path, 1, pid=101, parent=1, rank=1, after_s=after_s)
    exits = [_exit(tmp_path, 0, 1, 2.0, TIMED_OUT), _exit(tmp_path, 1, 0, 3.0)]
    failure = _root_cause(tmp_path, *exits)
    left = "exited with code 0 at 15:06:41 UTC, after RuntimeError" in failure.message
    assert left == is_told
