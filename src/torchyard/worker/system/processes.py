"""The processes of one node: found, signalled, ended.

Owns: reading /proc, the family of a process, signals that hit no bystander.
Leaves: when to end whom to launch/ranks.py and node/supervisor.py.
Always: a process is one (pid, start time) and is signalled through a pidfd where the kernel has
them; nothing is ever found by its name.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from torchyard.worker.system import cgroups

MARK_VARIABLE = "TORCHYARD_ATTEMPT"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_EVERY_S = 0.02
# A process in uninterruptible sleep outlives SIGKILL; nobody waits for it longer than this.
_KILL_LIMIT_S = 30.0


@dataclass(frozen=True)
class Process:
    """One line of /proc; `start_time` counts clock ticks since the machine started."""

    pid: int
    parent: int
    state: str
    start_time: int

    @property
    def ended(self) -> bool:
        return self.state in "ZX"


def mark(attempt_id: str, node: int) -> str:
    """The value of `MARK_VARIABLE` in the environment of every process of this node."""
    return f"{attempt_id}:{node}"


def read(pid: int) -> Process | None:
    """The process with this number, None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name in brackets may itself hold brackets and spaces: the last one ends it.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]))


def adopt_orphans() -> bool:
    """Be the parent of every descendant whose own parent ends; False where that can't be had."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int) -> bool:
    """Be sent `signum` when the parent ends, however it ends."""
    return _prctl(_PR_SET_PDEATHSIG, signum)


def family(root: int, mark: str) -> list[Process]:
    """Living descendants of `root`, and whoever else is in the mark's cgroup or carries it in
    its environment.
    """
    grouped = set(cgroups.members(mark))
    everyone = {process.pid: process for process in map(read, _pids()) if process is not None}
    related = _descendants(everyone, root)
    spared = {os.getpid(), os.getppid(), root}
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    return [
        process
        for process in everyone.values()
        if not process.ended
        and process.pid not in spared
        and (
            process.pid in related or process.pid in grouped or wanted in _environment(process.pid)
        )
    ]


def below(root: int) -> list[Process]:
    """The living process `root` and its descendants, by number."""
    everyone = {process.pid: process for process in map(read, _pids()) if process is not None}
    wanted = {root, *_descendants(everyone, root)}
    return [everyone[pid] for pid in sorted(wanted) if pid in everyone and not everyone[pid].ended]


def send(process: Process, signum: int) -> None:
    """Signal this very process, or nobody."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        if _same(process):
            _quietly(lambda: os.kill(process.pid, signum))
        return
    try:
        # The number may have passed to another process before the handle was opened, not after.
        if _same(process):
            _quietly(lambda: signal.pidfd_send_signal(handle, signum))
    finally:
        os.close(handle)


def end(find: Callable[[], list[Process]], grace_s: float, reap: Callable[[], None]) -> bool:
    """SIGTERM, then after the grace SIGKILL, until `find` finds nobody; False when some remain."""
    started = time.monotonic()
    told: set[tuple[int, int]] = set()
    while True:
        reap()
        found = find()
        if not found:
            return True
        waited_s = time.monotonic() - started
        if waited_s > grace_s + _KILL_LIMIT_S:
            return False
        for process in found:
            if waited_s >= grace_s:
                send(process, signal.SIGKILL)
            elif (process.pid, process.start_time) not in told:
                told.add((process.pid, process.start_time))
                send(process, signal.SIGTERM)
        time.sleep(_LOOK_EVERY_S)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _descendants(everyone: dict[int, Process], root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for process in everyone.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _same(process: Process) -> bool:
    now = read(process.pid)
    return now is not None and now.start_time == process.start_time


def _quietly(call: Callable[[], None]) -> None:
    try:
        call()
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


def _prctl(option: int, value: int) -> bool:
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False
