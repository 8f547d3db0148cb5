"""Ranks that a script starts by itself: by torch.multiprocessing.spawn, by multiprocessing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from torchyard.shared.failures import Failure
from torchyard.worker.diagnosis import diagnosis
from torchyard.worker.diagnosis.context import DiagnosisContext
from torchyard.worker.in_rank import rank_record
from torchyard.worker.launch.ranks import Rank, RankExit
from torchyard.worker.system.memory_kills import MemoryKills

_RAISED = """\


-- Process 2 terminated with the following error:
Traceback (most recent call last):
  File "torch/multiprocessing/spawn.py", line 87, in _wrap
    fn(i, *args)
  File "train.py", line 7, in work
    raise ValueError("bad batch")
ValueError: bad batch
"""
_CHILD = """\
Process SpawnProcess-{number}:
Traceback (most recent call last):
  File "multiprocessing/process.py", line 314, in _bootstrap
    self.run()
  File "train.py", line {line}, in work
    dist.all_reduce(t)
{error}
"""
_LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:41216"


class ProcessRaisedException(Exception):
    """As torch.multiprocessing has it."""


ProcessRaisedException.__module__ = "torch.multiprocessing.spawn"


class ProcessExitedException(Exception):
    """As torch.multiprocessing has it."""


ProcessExitedException.__module__ = "torch.multiprocessing.spawn"


def _failure(folder: Path, log: str = "", node: int = 0) -> Failure:
    file = folder / "log.txt"
    file.write_text(log)
    exit = RankExit(Rank(0, 0, file, "std_log.txt"), 1, 0, 100, time.time(), 0, False)
    context = DiagnosisContext(node, False, folder, folder / "errors", MemoryKills())
    failure = diagnosis.root_cause([exit], context, time.time() + 60)
    assert failure is not None
    return failure


def _record(folder: Path, error: Exception) -> None:
    records = folder / "errors" / "rank-0"
    records.mkdir(parents=True)
    record = rank_record.describe(time.time(), "exception", type(error), error, None)
    rank_record.save(str(records), {**record, "pid": 100, "rank": "0", "world_size": ""})


@pytest.mark.parametrize(("node", "name"), [(0, "rank 2 on node 0"), (1, "rank 0 on node 1")])
def test_the_process_that_spawn_names_is_the_rank(tmp_path: Path, node: int, name: str) -> None:
    _record(tmp_path, ProcessRaisedException(_RAISED))
    failure = _failure(tmp_path, node=node)
    assert failure.message.startswith(f"{name} exited with code 1: ValueError: bad batch")


def test_a_process_of_spawn_that_was_killed_is_the_rank(tmp_path: Path) -> None:
    _record(tmp_path, ProcessExitedException("process 3 terminated with signal SIGKILL"))
    assert _failure(tmp_path).message.startswith("rank 3 on node 0 exited with code 1: ")


def test_the_process_that_failed_first_is_the_cause(tmp_path: Path) -> None:
    first = _CHILD.format(number=3, line=7, error="ValueError: bad batch")
    other = _CHILD.format(number=1, line=8, error=_LOST)
    for log in (first + other + other, other + first + other, other + first):
        assert "ValueError: bad batch (train.py line 7" in _failure(tmp_path, log).message
    assert "Connection closed by peer" in _failure(tmp_path, other).message


def test_a_process_of_spawn_is_the_rank_where_only_the_log_tells(tmp_path: Path) -> None:
    title = "torch.multiprocessing.spawn.ProcessRaisedException"
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>']
    log = "\n".join([*lines, f"{title}: {_RAISED}"])
    message = _failure(tmp_path, log).message
    assert message.startswith("rank 2 on node 0 exited with code 1: ValueError: bad batch")
