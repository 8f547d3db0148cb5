"""A rank that exited with code 0 while others waited for it is the cause of their failures."""

from __future__ import annotations

from pathlib import Path

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
        "it: rank 0 on node 0 exited with code 1: "
    )
    assert "fewer batches" in failure.hint
    assert failure.details["early_exit"]["rank"] == 2
    # A root cause on another node still comes before it.
    assert failure.details["consequence"]


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
