"""The processes of one node: finding and ending a process with its descendants.

Owns: the family of a process, ending it, what a process wants to happen when its parent ends.
Leaves: single processes to shared/processes.py; when to end whom to launch/ranks.py and
node/supervisor.py, whom to ask to end to termination.py.
Always: nothing is ever found by its name.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from torchyard.shared.processes import Process, read, send
from torchyard.worker.system import cgroups
from torchyard.worker.system.termination import Termination

MARK_VARIABLE = "TORCHYARD_ATTEMPT"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
# A process in uninterruptible sleep outlives SIGKILL; nobody waits for it longer than this.
_KILL_LIMIT_S = 30.0


def mark(attempt_id: str, node: int) -> str:
    """The value of `MARK_VARIABLE` in the environment of every process of this node."""
    return f"{attempt_id}:{node}"


def become_subreaper() -> bool:
    """Be the parent of every descendant whose own parent ends; False where that can't be had."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int) -> bool:
    """Be sent `signum` when the parent ends, however it ends."""
    return _prctl(_PR_SET_PDEATHSIG, signum)


def family(root: int, mark: str, since: int = 0) -> list[Process]:
    """Living descendants of `root`, and all processes in the mark's cgroup or with the mark in
    their environment.

    Args:
        since: when the first process that could bear the mark started, in clock ticks since the
            machine did: those before are not read, which is most of the work on a full machine.
    """
    grouped = set(cgroups.members(mark))
    everyone = {process.pid: process for process in map(read, _pids()) if process is not None}
    related = _descendants(everyone, root)
    spared = {os.getpid(), os.getppid(), root}
    marked = f"{MARK_VARIABLE}={mark}".encode()
    return [
        process
        for process in everyone.values()
        if not process.ended
        and process.pid not in spared
        and (
            process.pid in related
            or process.pid in grouped
            or (process.start_time >= since and marked in _environment(process.pid))
        )
    ]


def below(root: int) -> list[Process]:
    """The living process `root` and its descendants, by number."""
    everyone = {process.pid: process for process in map(read, _pids()) if process is not None}
    pids = {root, *_descendants(everyone, root)}
    return [everyone[pid] for pid in sorted(pids) if pid in everyone and not everyone[pid].ended]


def families(roots: Collection[int]) -> dict[int, frozenset[int]]:
    """The numbers of each of these processes and its descendants, by one walk through /proc."""
    children = _children(process for process in map(read, _pids()) if process is not None)
    return {root: frozenset({root, *_below(children, root)}) for root in roots}


def end(
    find: Callable[[], list[Process]],
    grace_s: float,
    reap: Callable[[], None],
    is_urgent: Callable[[], bool] = lambda: False,
) -> bool:
    """SIGTERM, after the grace SIGKILL, until `find` returns nobody; False when some remain.

    SIGTERM goes to those that termination.py chooses.

    Args:
        is_urgent: whether the grace is over early.
    """
    started = time.monotonic()
    termination = Termination(grace_s)
    while True:
        reap()
        living = find()
        if not living:
            return True
        waited_s = time.monotonic() - started
        if waited_s > grace_s + _KILL_LIMIT_S:
            return False
        if waited_s >= grace_s or is_urgent():
            for process in living:
                send(process.pid, process.start_time, signal.SIGKILL)
        else:
            for process in termination.choose(living, waited_s):
                # So that a signal that torchyard did not send can be told from those that it did.
                print(f"SIGTERM to pid {process.pid}", file=sys.stderr, flush=True)
                send(process.pid, process.start_time, signal.SIGTERM)
        time.sleep(_POLL_S)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _descendants(everyone: dict[int, Process], root: int) -> set[int]:
    return _below(_children(everyone.values()), root)


def _children(everyone: Iterable[Process]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for process in everyone:
        children.setdefault(process.parent, []).append(process.pid)
    return children


def _below(children: Mapping[int, Sequence[int]], root: int) -> set[int]:
    descendants: set[int] = set()
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in descendants:
                descendants.add(pid)
                waiting.append(pid)
    return descendants


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _prctl(option: int, value: int) -> bool:
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False
