"""Whether processes do anything: the processor time that they use, the bytes that they read and
write.

Owns: measuring families of processes, all by one walk through /proc.
Leaves: what it means that they do nothing to diagnosis/stall_watch.py.
Always: what can't be read counts as nothing.

Source: proc(5), `/proc/<pid>/stat`, fields 14 to 17, and `/proc/<pid>/io`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from torchyard.worker.system import processes

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Activity:
    """What a family of processes has done so far; those that its members waited for are counted.

    `runs` says that one of them would go on at this moment: it computes, or waits for a processor.
    """

    processor_s: float
    moved_bytes: int
    runs: bool


def measure(roots: Collection[int]) -> dict[int, Activity]:
    """What each of these processes has done with its descendants."""
    families = processes.families(roots)
    return {root: _of_family(pids) for root, pids in families.items()}


def _of_family(pids: frozenset[int]) -> Activity:
    read = [_processor_use(pid) for pid in pids]
    return Activity(
        sum(ticks for ticks, _ in read) / _TICKS_PER_S,
        sum(map(_moved, pids)),
        any(runs for _, runs in read),
    )


def _processor_use(pid: int) -> tuple[int, bool]:
    """In clock ticks, and whether its main thread runs or is ready to."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return 0, False
    fields = text[text.rindex(b")") + 2 :].split()
    return sum(int(field) for field in fields[11:15]), fields[0] == b"R"


def _moved(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith((b"rchar", b"wchar")))
