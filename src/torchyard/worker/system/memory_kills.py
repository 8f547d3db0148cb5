"""Whether the kernel killed something here for memory.

Owns: the counters of cgroups (both versions) and of the machine.
Leaves: whom it hit to diagnosis/diagnosis.py.
Always: what can't be read counts as nothing killed.
"""

from __future__ import annotations

from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


class MemoryKills:
    """Counts from now on."""

    def __init__(self, cgroups: Path = _CGROUPS, proc: Path = _PROC) -> None:
        self._files = [proc / "vmstat", *_own_cgroup(cgroups, proc)]
        self._before = [_count(file) for file in self._files]

    def happened(self) -> bool:
        """Whether a counter has grown since."""
        return any(_count(file) > old for file, old in zip(self._files, self._before))


def _own_cgroup(cgroups: Path, proc: Path) -> list[Path]:
    """The files that count for this process's cgroup, and for the container's."""
    files = [cgroups / "memory.events", cgroups / "memory" / "memory.oom_control"]
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return files
    for line in lines:
        _, kinds, path = (*line.split(":", 2), "", "")[:3]
        inner = path.lstrip("/")
        if not kinds:
            files.append(cgroups / inner / "memory.events")
        elif "memory" in kinds.split(","):
            files.append(cgroups / "memory" / inner / "memory.oom_control")
    return list(dict.fromkeys(files))


def _count(file: Path) -> int:
    try:
        for line in file.read_text().splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    except (OSError, ValueError):
        pass
    return 0
