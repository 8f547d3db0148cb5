"""Which rank a launcher within the command says failed first, and how.

Owns: how torchrun, accelerate, DeepSpeed and mpirun say it.
Leaves: what that means to diagnosis.py.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

# As torchrun and accelerate list the rank that failed first.
_TORCHRUN = re.compile(
    r"Root Cause \(first observed failure\):.{0,200}?rank {0,9}: (?P<rank>\d{1,9})"
    r"(?:.{0,60}?exitcode {0,9}: (?P<code>-?\d{1,3}))?",
    re.S,
)
# Its first line alone: it ends the others then.
_DEEPSPEED = re.compile(
    r"'--local_rank=(?P<rank>\d{1,9})'[^\n]{0,4000}exits with return code = (?P<code>-?\d{1,3})"
)
_MPIRUN = re.compile(
    r"The first process to do so was:\s{1,9}"
    r"Process name: \[\[\d{1,9},\d{1,9}\],(?P<rank>\d{1,9})\]\s{1,9}"
    r"Exit code: {1,9}(?P<code>\d{1,3})"
)
_MPIRUN_SIGNAL = re.compile(
    r"mpirun noticed that process rank (?P<rank>\d{1,9}) with PID \d{1,9} on node \S{1,255} "
    r"exited on\s{1,9}signal (?P<signal>\d{1,2})"
)


@dataclass(frozen=True)
class LaunchedRank:
    """`exit_code` and `signal` are 0 where the launcher does not say them."""

    rank: int
    exit_code: int = 0
    signal: int = 0


def is_list(error_type: str) -> bool:
    """Whether the error is torchrun's list of ranks, whose own title says nothing."""
    return error_type.endswith(".ChildFailedError")


def listed(text: str, counts_alone: bool) -> LaunchedRank | None:
    """The rank that a launcher named in this text.

    Args:
        counts_alone: whether the launcher's ranks are all on this node; DeepSpeed names the ranks
            of a node.
    """
    patterns = (_TORCHRUN, _MPIRUN, _MPIRUN_SIGNAL, *((_DEEPSPEED,) if counts_alone else ()))
    for pattern in patterns:
        match = pattern.search(text)
        if match is not None:
            groups = match.groupdict()
            code = int(groups.get("code") or 0)
            signum = int(groups.get("signal") or 0) or max(-code, 0)
            if signum == signal.SIGTERM:
                signum = 0  # sent by what ended the launcher
            return LaunchedRank(int(groups["rank"]), max(code, 0), signum)
    return None
