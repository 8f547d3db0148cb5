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
from dataclasses import dataclass

from torchyard.shared.processes import Process

_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
# How long a reader may take for the rest of a pipe, at most.
_DRAIN_S = 1.0
_Key = tuple[int, int]
_Pipe = tuple[int, int]


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
        readers = _pipe_readers(living) if waiting else _Readers()
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

    def _reads(self, process: Process, readers: _Readers, waited_s: float) -> bool:
        """Whether its pipe has a writer, or had one until just now."""
        key = _key(process)
        is_other = process.pid in readers.others
        if is_other and (_is_shell(process.pid) or waited_s >= self._grace_s / 2):
            # A shell would go on with its next command while it is given time.
            return waited_s < self._grace_s / 2
        if is_other or process.pid in readers.commands:
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


@dataclass(frozen=True)
class _Readers:
    """Who reads pipes that others of a family write to.

    `commands` read their standard input. `others` have no handler and read what those write that
    don't wait for them in turn, as a main process and its data loaders do: what `$(…)` or
    `subprocess` started, or `<(…)`.
    """

    commands: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()


def _pipe_readers(living: Sequence[Process]) -> _Readers:
    pipes = {process.pid: _pipes(process.pid) for process in living}
    writers: dict[_Pipe, set[int]] = {}
    for pid, files in pipes.items():
        for file in files:
            if file.writes:
                writers.setdefault(file.pipe, set()).add(pid)
    sources: dict[int, set[int]] = {}
    commands = set()
    for pid, files in pipes.items():
        for file in files:
            if file.reads and (of_pipe := writers.get(file.pipe, set()) - {pid}):
                sources.setdefault(pid, set()).update(of_pipe)
                if file.number == 0:
                    commands.add(pid)
    others = {
        pid
        for pid, direct in sources.items()
        if any(pid not in _upstream(writer, sources) for writer in direct)
        and not _handles_sigterm(pid)
    }
    return _Readers(frozenset(commands), frozenset(others - commands))


def _upstream(pid: int, sources: Mapping[int, set[int]]) -> set[int]:
    """The processes whose output this one reads, also by way of others."""
    reached: set[int] = set()
    waiting = [pid]
    while waiting:
        new = sources.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


@dataclass(frozen=True)
class _PipeFile:
    """A pipe, with a name or without one, that a process has open."""

    number: int
    pipe: _Pipe
    reads: bool
    writes: bool


def _pipes(pid: int) -> list[_PipeFile]:
    folder = f"/proc/{pid}/fd"
    files = []
    try:
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            status = os.stat(path)
            if stat.S_ISFIFO(status.st_mode):
                # The permissions of the link are the mode in which the file is open.
                mode = os.lstat(path).st_mode
                pipe = (status.st_dev, status.st_ino)
                reads, writes = bool(mode & stat.S_IRUSR), bool(mode & stat.S_IWUSR)
                files.append(_PipeFile(int(name), pipe, reads, writes))
    except OSError:
        pass  # it has just ended
    return files


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
