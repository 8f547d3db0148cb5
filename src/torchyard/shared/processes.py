"""Processes of this machine.

Owns: reading `/proc/<pid>/stat`, telling a process from a later one with its number, signalling it.
Leaves: families of processes to worker/system/processes.py.
Always: a process is one (pid, start time); one that ended and was not reaped yet has ended.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from typing import NamedTuple, Optional

# A name of 64 characters and fifty numbers.
_STAT_BYTES = 2048


class Process(NamedTuple):
    """`start_time` counts clock ticks since the machine started."""

    pid: int
    parent: int
    state: str
    start_time: int

    @property
    def ended(self) -> bool:
        return self.state in "ZX"


def read(pid: int) -> Optional[Process]:
    """The process with this number, None when there is none.

    Source: proc(5), `/proc/<pid>/stat`, fields 3 (state), 4 (parent) and 22 (start time).
    """
    # Without a buffer: a walk through all processes reads hundreds.
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(descriptor, _STAT_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    # The name in brackets may itself hold brackets and spaces: the last one ends it.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]))


def start_time(pid: int) -> int:
    """When `pid` started; 0 when it is not running."""
    process = read(pid)
    return 0 if process is None or process.ended else process.start_time


def is_running(pid: int, started: int) -> bool:
    """Whether the process that started then still runs."""
    return pid > 0 and started > 0 and start_time(pid) == started


def send(pid: int, started: int, signum: int) -> None:
    """Signal this very process, or nobody."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        # Neither this kernel nor this Python may have it.
        if start_time(pid) == started:
            _ignore_missing(lambda: os.kill(pid, signum))
        return
    try:
        # The number may have passed to another process before the handle was opened, not after.
        if start_time(pid) == started:
            _ignore_missing(lambda: signal.pidfd_send_signal(handle, signum))
    finally:
        os.close(handle)


def _ignore_missing(call: Callable[[], None]) -> None:
    try:
        call()
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise
