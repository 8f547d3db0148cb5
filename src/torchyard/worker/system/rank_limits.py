"""Limits of a rank that need no cgroup: open files, processes, who is killed when memory runs out.

Owns: setting them for a rank that has just been started.
Leaves: limits of all ranks of a node together to cgroups.py.
Always: ranks inherit what the worker has where a limit can't be set; nothing is ever raised.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# The kernel then kills a rank rather than the worker, or a server beside it.
_KILLED_FIRST = "500"


@dataclass(frozen=True)
class RankLimits:
    """`open_files` of each process, `processes` of the whole user; 0 for no limit."""

    open_files: int = 0
    processes: int = 0

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """What is started in the block begins with the limits; this process does not keep them."""
        before = {kind: resource.getrlimit(kind) for kind in self._counts()}
        for kind, count in self._counts().items():
            soft, hard = before[kind]
            resource.setrlimit(kind, (_least(count, soft), hard))
        try:
            yield
        finally:
            for kind, limits in before.items():
                resource.setrlimit(kind, limits)

    def apply(self, pid: int) -> None:
        """Take from a rank that has been started, and what it starts, the right to more."""
        for kind, count in self._counts().items():
            try:
                soft, hard = resource.prlimit(pid, kind)
                resource.prlimit(pid, kind, (_least(count, soft), _least(count, hard)))
            except (OSError, ValueError):
                pass  # it has ended, or became another user's
        try:
            Path(f"/proc/{pid}/oom_score_adj").write_text(_KILLED_FIRST)
        except OSError:
            pass  # it has ended, or has more than it would get

    def _counts(self) -> dict[int, int]:
        counts = {
            resource.RLIMIT_NOFILE: self.open_files,
            resource.RLIMIT_NPROC: self.processes,
        }
        return {kind: count for kind, count in counts.items() if count > 0}


def of_user(processes: int) -> int:
    """The limit for `processes` more than the user has now; 0 where the kernel does not hold it.

    It is checked against all processes of the user, on the whole machine, and never for root.
    """
    user = os.geteuid()
    return _count_of(user) + processes if user and processes > 0 else 0


def _least(count: int, limit: int) -> int:
    return count if limit == resource.RLIM_INFINITY else min(count, limit)


def _count_of(user: int) -> int:
    """How many processes and threads a user has."""
    count = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid == user:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return count
