"""This machine's processes, as the local engine sees them.

Owns: telling a process from a later one with its number, signalling it.
Leaves: a worker's own ranks to the worker.
Always: a process is one (pid, start time); one that ended but was not reaped yet has ended.
"""

from __future__ import annotations

import os
import signal


def start_time(pid: int) -> int | None:
    """Clock ticks from the machine's start to the process's; None when none lives.

    Source: proc(5), field 22 of /proc/<pid>/stat.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def lives(pid: int, started: int) -> bool:
    """Whether this very process still runs."""
    return pid > 0 and start_time(pid) == started


def send(pid: int, started: int, signum: int) -> None:
    """Signal this very process, or nobody."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if lives(pid, started):
            signal.pidfd_send_signal(handle, signum)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
