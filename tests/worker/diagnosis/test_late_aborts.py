"""An abort after a Python's end is told from one that cut the script off."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from torchyard.worker.diagnosis import late_aborts
from torchyard.worker.in_rank import rank_record
from torchyard.worker.launch.ranks import Rank, RankExit

_AGENT, _FIRST, _SECOND = 70, 71, 72
_FAILED_CHILDREN = """
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
{others}
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : {code} (pid: {pid})
  traceback : Signal 6 (SIGABRT) received by PID {pid}
"""


class ChildFailedError(Exception):
    """As torch's elastic launcher raises it."""


def _exit(tmp_path: Path, code: int, signum: int = 0) -> RankExit:
    rank = Rank(0, 0, tmp_path / "log.txt", "user_logs/std_log.txt")
    return RankExit(rank, code, signum, pid=_AGENT, at=time.time())


def _is_forgiven(exit: RankExit, folder: Path) -> bool:
    forgiven = late_aborts.forgive(exit, folder)
    assert forgiven.aborted_late == (forgiven != exit)
    return forgiven.aborted_late and (forgiven.exit_code, forgiven.signal) == (0, 0)


@pytest.mark.parametrize(
    ("files", "is_forgiven"),
    [
        ((f"{_AGENT}.end",), True),
        # Of an earlier process with its number, and its own.
        ((f"{_AGENT}.end", f"{_AGENT}.stack"), False),
        ((f"{_AGENT}.stack",), False),
        ((f"{_AGENT}.quit",), False),
        ((f"{_FIRST}.end",), False),
        ((), False),
    ],
)
def test_an_abort_counts_unless_python_had_succeeded(
    files: tuple[str, ...], is_forgiven: bool, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).touch()
    exit = _exit(tmp_path, 128 + signal.SIGABRT, signal.SIGABRT)
    assert _is_forgiven(exit, tmp_path) == is_forgiven


def test_a_crash_after_the_end_counts(tmp_path: Path) -> None:
    (tmp_path / f"{_AGENT}.end").touch()
    exit = _exit(tmp_path, 128 + signal.SIGSEGV, signal.SIGSEGV)
    assert not _is_forgiven(exit, tmp_path)


@pytest.mark.parametrize("line", ["bash: line 1: {} Aborted (core dumped) python x.py",
                                  "/bin/bash: {} Aborted                 python x.py"])  # fmt: skip
def test_below_a_shell_the_aborted_program_is_looked_up(line: str, tmp_path: Path) -> None:
    exit = _exit(tmp_path, 128 + signal.SIGABRT)
    exit.rank.log.write_text(f"epoch 3\n{line.format(_FIRST)}\n")
    assert not _is_forgiven(exit, tmp_path)
    (tmp_path / f"{_SECOND}.end").touch()
    assert not _is_forgiven(exit, tmp_path)
    (tmp_path / f"{_FIRST}.end").touch()
    assert _is_forgiven(exit, tmp_path)


@pytest.mark.parametrize(
    ("command", "said_by"),
    [
        ("python x.py && python y.py", "bash: line 1"),
        ("set -e\npython x.py\npython y.py", "bash: line 2"),
        ("python x.py || exit; python y.py", "bash: line 1"),
        ("./run.sh", "./run.sh: line 3"),
    ],
)
def test_an_abort_counts_where_the_shell_may_have_skipped_the_rest(
    command: str, said_by: str, tmp_path: Path
) -> None:
    (tmp_path / f"{_FIRST}.end").touch()
    exit = _exit(tmp_path, 128 + signal.SIGABRT)
    exit.rank.log.write_text(f"{said_by}: {_FIRST} Aborted (core dumped) python x.py\n")
    assert late_aborts.forgive(exit, tmp_path, command) == exit


@pytest.mark.parametrize(
    ("others", "code", "files", "is_forgiven"),
    [
        ("  <NO_OTHER_FAILURES>", -6, (f"{_FIRST}.end",), True),
        ("  <NO_OTHER_FAILURES>", 1, (f"{_FIRST}.end",), False),
        ("  <NO_OTHER_FAILURES>", -6, (f"{_FIRST}.end", f"{_SECOND}.stack"), False),
        (f"  exitcode  : -6 (pid: {_SECOND})", -6, (f"{_FIRST}.end", f"{_SECOND}.end"), True),
        (f"  exitcode  : -6 (pid: {_SECOND})", -6, (f"{_FIRST}.end",), False),
        # The launcher's SIGTERM, after its end and before.
        (f"  exitcode  : -15 (pid: {_SECOND})", -6, (f"{_FIRST}.end", f"{_SECOND}.end"), True),
        (f"  exitcode  : -15 (pid: {_SECOND})", -6, (f"{_FIRST}.end", f"{_SECOND}.stack"), False),
        (f"  exitcode  : -15 (pid: {_SECOND})", -15, (f"{_FIRST}.end", f"{_SECOND}.end"), False),
        (f"  exitcode  : 3 (pid: {_SECOND})", -6, (f"{_FIRST}.end", f"{_SECOND}.end"), False),
    ],
)
def test_a_launchers_failure_counts_unless_all_its_ranks_had_succeeded(
    others: str, code: int, files: tuple[str, ...], is_forgiven: bool, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).touch()
    error = ChildFailedError(_FAILED_CHILDREN.format(others=others, code=code, pid=_FIRST))
    record = rank_record.describe(time.time(), "exception", ChildFailedError, error, None)
    rank_record.save(str(tmp_path), {**record, "pid": _AGENT})
    assert _is_forgiven(_exit(tmp_path, 1), tmp_path) == is_forgiven


@pytest.mark.parametrize(
    ("command", "is_forgiven"),
    [
        ("set -e\npip install x\ntorchrun train.py --lr 1 >log.txt 2>&1\n", True),
        ("set -eo pipefail; torchrun train.py | tee log.txt", True),
        ("torchrun pretrain.py && torchrun train.py | tee log.txt", True),
        ("", False),
        ("torchrun $SCRIPT >log.txt", False),
        ("set -e; torchrun train.py; python eval.py", False),
        ("set -e; torchrun train.py; torchrun train.py", False),
        ("if torchrun train.py\nthen true\nfi", False),
    ],
)
def test_a_launchers_failure_below_a_shell_counts_unless_nothing_follows(
    command: str, is_forgiven: bool, tmp_path: Path
) -> None:
    (tmp_path / f"{_FIRST}.end").touch()
    error = ChildFailedError(_FAILED_CHILDREN.format(others="", code=-6, pid=_FIRST))
    record = rank_record.describe(time.time(), "exception", ChildFailedError, error, None)
    rank_record.save(str(tmp_path), {**record, "pid": _SECOND, "parent": _AGENT})
    exit = _exit(tmp_path, 1)
    assert late_aborts.forgive(exit, tmp_path, command).aborted_late == is_forgiven


@pytest.mark.parametrize(
    ("command", "is_forgiven"),
    [
        ("set -e\npip install x\npython train.py", True),
        ("set -e\npip install x\npython train.py\n", True),
        ("set -eo pipefail\npython train.py | tee log.txt", True),
        ("set -o pipefail; { python train.py; } | tee log.txt", True),
        ("set -e\npython train.py\npython eval.py", False),
        ("set -e\npython train.py\npython train.py", False),
        ("set -e\npython train.py & wait", False),
        ("set -e\ncheck_python train.py", False),
    ],
)
def test_an_abort_of_the_last_command_has_skipped_nothing(
    command: str, is_forgiven: bool, tmp_path: Path
) -> None:
    (tmp_path / f"{_FIRST}.end").touch()
    (tmp_path / "log.txt").write_text(
        f"bash: line 2: {_FIRST} Aborted                 (core dumped) python train.py\n"
        f"     {_SECOND} Done                    | tee log.txt\n"
    )
    exit = _exit(tmp_path, 128 + signal.SIGABRT)
    assert late_aborts.forgive(exit, tmp_path, command).aborted_late == is_forgiven
