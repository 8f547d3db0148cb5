"""How much memory of the machine a copy may take.

Owns: reading it from the kernel.
Leaves: what a copy needs to those who copy.
Always: it imports nothing that is slow to load.
"""

from __future__ import annotations

from pathlib import Path


def available_bytes(root: Path) -> int | None:
    """How much memory can be taken, of the machine and the control groups; None if unknown.

    Source: proc_meminfo(5), and cgroup v2's memory.max, memory.current and memory.stat.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        group = (root / "proc/self/cgroup").read_text().rsplit("0::/", 1)[1].strip()
    except (OSError, IndexError):
        return free
    top = root / "sys/fs/cgroup"
    for folder in (top / group, *(top / group).parents):
        group_free = _group_free_bytes(folder)
        if group_free is not None:
            free = min(free, group_free)
        if folder == top:
            break
    return free


def _group_free_bytes(folder: Path) -> int | None:
    """What is left of a control group's limit; cached pages of files count as left."""
    try:
        limit = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
        lines = (folder / "memory.stat").read_text().splitlines()
        pages = {name: int(count) for name, count in (line.split() for line in lines)}
    except (OSError, ValueError):
        return None  # no limit, or no control group of version 2
    cached = pages.get("inactive_file", 0) + pages.get("active_file", 0)
    return max(0, limit - max(0, used - cached))
