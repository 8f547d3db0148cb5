"""Take secrets out of this process's environment, for good.

Owns: reading such variables once, overwriting the kernel's copy behind `/proc/PID/environ`.
Leaves: which variables are secrets to settings.py.
Always: what was taken is in no environment of this process or of any that it starts later.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

_STAT = Path("/proc/self/stat")
# Fields 50 and 51 of proc(5), counted from the third: the name before it may hold blanks.
_ENVIRONMENT_START, _ENVIRONMENT_END = 47, 48


def take(names: Iterable[str]) -> dict[str, str]:
    """Remove the variables of these names; returns the values of those that were set."""
    values = {name: os.environ.pop(name) for name in names if name in os.environ}
    if values:
        _overwrite(tuple(values))
    return values


def _overwrite(names: tuple[str, ...]) -> None:
    """Fill with zeros what the process was started with, which removing a variable leaves."""
    try:
        fields = _STAT.read_text().rpartition(")")[2].split()
        start, end = int(fields[_ENVIRONMENT_START]), int(fields[_ENVIRONMENT_END])
    except (OSError, IndexError, ValueError):
        return  # no /proc: then nobody reads an environment there
    if not 0 < start < end:
        return  # the kernel shows it to nobody
    at = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        if any(entry.startswith(os.fsencode(f"{name}=")) for name in names):
            ctypes.memset(at, 0, len(entry))
        at += len(entry) + 1
