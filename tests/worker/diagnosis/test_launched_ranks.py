"""Ranks of a launcher within the command: accelerate, DeepSpeed, mpirun."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from torchyard.shared.failures import Failure
from torchyard.worker.diagnosis import diagnosis
from torchyard.worker.diagnosis.context import DiagnosisContext
from torchyard.worker.in_rank import rank_record
from torchyard.worker.launch.ranks import Rank, RankExit
from torchyard.worker.system.memory_kills import MemoryKills

# As Open MPI 4.1 and DeepSpeed 0.19 print them.
_MPIRUN = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[27206,1],2]
  Exit code:    3
--------------------------------------------------------------------------
"""
_MPIRUN_SIGNAL = (
    "mpirun noticed that process rank 2 with PID 0 on node vm exited on signal 11 (Segmentation "
    "fault).\n"
)
_DEEPSPEED = (
    "[2026-11-28 10:36:15,571] [ERROR] [launch.py:259:sigkill_handler] ['/env/bin/python', '-u', "
    "'train.py', '--local_rank=2'] exits with return code = {code}\n"
)
_LIST = """\

=====
train.py FAILED
-----
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : node
  rank      : 2 (local_rank: 2)
  exitcode  : {code} (pid: 71)
"""


class ChildFailedError(Exception):
    """As torch has it."""


ChildFailedError.__module__ = "torch.distributed.elastic.multiprocessing.errors"


def _failure(folder: Path, log: str, exit_code: int = 1, node: int = 0) -> Failure:
    file = folder / "log.txt"
    file.write_text(log)
    exit = RankExit(Rank(0, 0, file, "std_log.txt"), exit_code, 0, 100, time.time(), 0, False)
    context = DiagnosisContext(node, False, folder, folder / "errors", MemoryKills())
    failure = diagnosis.root_cause([exit], context, time.time())
    assert failure is not None
    return failure


def _record(
    folder: Path, kind: str = "exception", error: Exception | None = None, **fields: Any
) -> None:
    records = folder / "errors" / "rank-0"
    records.mkdir(parents=True, exist_ok=True)
    name = None if error is None else type(error)
    record = rank_record.describe(time.time() - 1, kind, name, error, None)
    rank_record.save(str(records), {**record, "pid": 100, **fields})


@pytest.mark.parametrize(
    ("log", "how"),
    [
        (_MPIRUN, "exited with code 3"),
        (_MPIRUN_SIGNAL, "was killed by signal 11 (SIGSEGV): a segmentation fault"),
        (_DEEPSPEED.format(code=3), "exited with code 3"),
        (_DEEPSPEED.format(code=-11), "was killed by signal 11 (SIGSEGV): a segmentation fault"),
    ],
    ids=["mpirun", "mpirun, by signal", "DeepSpeed", "DeepSpeed, by signal"],
)
def test_the_rank_that_a_launcher_names_is_told_with_how_it_ended(
    tmp_path: Path, log: str, how: str
) -> None:
    failure = _failure(tmp_path, log, exit_code=7)
    assert failure.message.startswith(f"rank 2 on node 0 {how}")
    assert failure.exit_code == 7, "the launcher's"


@pytest.mark.parametrize(
    ("code", "how"),
    [(3, "exited with code 3"), (-11, "was killed by signal 11 (SIGSEGV): a segmentation fault")],
)
def test_torchruns_list_says_how_its_rank_ended_instead_of_a_line_of_signs(
    tmp_path: Path, code: int, how: str
) -> None:
    _record(tmp_path, error=ChildFailedError(_LIST.format(code=code)))
    failure = _failure(tmp_path, "")
    assert failure.message == f"rank 2 on node 0 {how}"


def test_deepspeeds_local_rank_is_not_the_rank_of_a_second_node(tmp_path: Path) -> None:
    failure = _failure(tmp_path, _DEEPSPEED.format(code=3), node=1)
    assert failure.message.startswith("rank 0 on node 1")


def test_what_the_rank_recorded_goes_before_what_its_launcher_says(tmp_path: Path) -> None:
    _record(tmp_path, error=ValueError("bad shard"), rank="2")
    assert _failure(tmp_path, _MPIRUN).message == (
        "rank 2 on node 0 exited with code 1: ValueError: bad shard"
    )


def test_the_scripts_own_exit_goes_before_the_launchers(tmp_path: Path) -> None:
    _record(tmp_path, "exit", status=3, rank="2", callers=[["train.py", 8, "<module>"]])
    launcher = "/env/lib/python3.11/site-packages/deepspeed/launcher/launch.py"
    _record(tmp_path, "exit", status=3, started=time.time() - 5, callers=[[launcher, 9, "main"]])
    message = _failure(tmp_path, _DEEPSPEED.format(code=3), exit_code=3).message
    assert message == "rank 2 on node 0 exited with code 3: sys.exit (train.py line 8)"


def test_the_scripts_own_code_is_told_where_its_launcher_has_another(tmp_path: Path) -> None:
    _record(tmp_path, "exit", status=3, rank="2", world_size="4", callers=[["train.py", 8, "f"]])
    started = time.time() - 5
    _record(tmp_path, error=ChildFailedError(_LIST.format(code=3)), started=started)
    log = "Traceback (most recent call last):\n    raise ChildFailedError(\n"
    failure = _failure(tmp_path, log)
    assert (
        failure.message == "rank 2 on node 0 exited with code 3: sys.exit (train.py line 8, in f)"
    )
    assert failure.exit_code == 1, "the launcher's"


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({"TORCHYARD_RANK": "0", "OMPI_COMM_WORLD_RANK": "2"}, "2"),
        ({"TORCHYARD_RANK": "0", "PMI_RANK": "2"}, "2"),
        ({"TORCHYARD_RANK": "0", "OMPI_COMM_WORLD_RANK": "2", "RANK": "1"}, "1"),
        ({"TORCHYARD_RANK": "3"}, "3"),
    ],
)
def test_a_process_of_mpirun_knows_its_rank(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: str
) -> None:
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "TORCHYARD_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank_record.rank() == rank
