"""Choose the processes that get SIGTERM, so that each is asked once and none loses its output.

Owns: who forwards the signal to its children, who only reads what others write, and the order.
Leaves: sending signals and killing after the grace to processes.py.
Always: a program that handles SIGTERM is asked, and what it started is left to it: torchrun,
mpirun and Lightning forward the signal, and a script that saves still needs its data loaders. What
reads from a pipe, such as `tee`, ends at its end of file.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Mapping, Sequence

from torchyard.shared.processes import Process

_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
# How long a reader may take for the rest of a pipe, at most.
_DRAIN_S = 1.0
_Key = tuple[int, int]


class Termination:
    """The requests to end of one family of processes.

    Args:
        grace_s: after which all of them are killed.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._asked: set[_Key] = set()
        self._forwarded: set[_Key] = set()
        self._reading_at: dict[_Key, float] = {}

    def choose(self, living: Sequence[Process], waited_s: float) -> list[Process]:
        """Those to ask now; each is chosen once."""
        by_pid = {process.pid: process for process in living}
        waiting = [process for process in living if _key(process) not in self._asked]
        readers = _pipe_readers(living) if waiting else set()
        chosen = [
            process
            for process in waiting
            if not self._reads(process, readers, waited_s)
            and not self._is_forwarded(process, by_pid, waited_s)
        ]
        if not chosen and not self._asked:
            chosen = waiting  # they wait for each other
        self._asked.update(map(_key, chosen))
        return chosen

    def _reads(self, process: Process, readers: set[int], waited_s: float) -> bool:
        """Whether its pipe has a writer, or had one until just now."""
        key = _key(process)
        if process.pid in readers:
            self._reading_at[key] = waited_s
        if key not in self._reading_at:
            return False
        return waited_s - self._reading_at[key] < min(_DRAIN_S, self._grace_s / 4)

    def _is_forwarded(
        self, process: Process, by_pid: Mapping[int, Process], waited_s: float
    ) -> bool:
        """Whether it gets the signal from a process above it, or got it before that ended."""
        key = _key(process)
        if _is_below_forwarder(process, by_pid):
            self._forwarded.add(key)
            return True
        # Without a handler of its own it would have ended: nobody has forwarded anything to it.
        is_saving = key in self._forwarded and _handles_sigterm(process.pid)
        return is_saving and waited_s < self._grace_s / 2


def _key(process: Process) -> _Key:
    return process.pid, process.start_time


def _is_below_forwarder(process: Process, by_pid: Mapping[int, Process]) -> bool:
    child, above = process, by_pid.get(process.parent)
    while above is not None:
        if _handles_sigterm(above.pid):
            # A shell runs its traps only when its command in the foreground has ended.
            is_foreground = _is_shell(above.pid) and not _ignores_sigquit(child.pid)
            if not is_foreground:
                return True
        child, above = above, by_pid.get(above.parent)
    return False


def _pipe_readers(living: Sequence[Process]) -> set[int]:
    """The processes whose standard input is a pipe that another of them can write to."""
    pipes = {process.pid: _pipe(f"/proc/{process.pid}/fd/0") for process in living}
    if not any(pipes.values()):
        return set()
    writers: dict[str, set[int]] = {}
    for process in living:
        for pipe in _written_pipes(process.pid):
            writers.setdefault(pipe, set()).add(process.pid)
    return {pid for pid, pipe in pipes.items() if pipe and writers.get(pipe, set()) - {pid}}


def _pipe(path: str) -> str:
    """`pipe:[<inode>]` for an open file that is a pipe, otherwise empty."""
    try:
        target = os.readlink(path)
    except OSError:
        return ""
    return target if target.startswith("pipe:") else ""


def _written_pipes(pid: int) -> set[str]:
    folder = f"/proc/{pid}/fd"
    pipes = set()
    try:
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            # The permissions of the link are the mode in which the file is open.
            if (pipe := _pipe(path)) and os.lstat(path).st_mode & stat.S_IWUSR:
                pipes.add(pipe)
    except OSError:
        pass  # it has just ended
    return pipes


def _handles_sigterm(pid: int) -> bool:
    """Whether it has a handler, or blocks the signal and waits for it, as init programs do."""
    masks = _signal_masks(pid)
    return _has(masks.get("SigCgt", 0) | masks.get("SigBlk", 0), signal.SIGTERM)


def _ignores_sigquit(pid: int) -> bool:
    """Whether a shell has started it with `&`."""
    return _has(_signal_masks(pid).get("SigIgn", 0), signal.SIGQUIT)


def _has(mask: int, signum: int) -> bool:
    return bool(mask >> (signum - 1) & 1)


def _signal_masks(pid: int) -> dict[str, int]:
    """Source: proc(5), `/proc/<pid>/status`."""
    masks = {}
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name in ("SigBlk", "SigIgn", "SigCgt"):
                    masks[name] = int(value, 16)
    except (OSError, ValueError):
        return {}
    return masks


def _is_shell(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip() in _SHELLS
    except OSError:
        return False
