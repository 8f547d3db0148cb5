"""Whether the kernel killed a process here because memory ran out.

Owns: the counters of cgroups (both versions) and of the machine.
Leaves: which rank it was to diagnosis/diagnosis.py.
Always: a counter that can't be read counts as no kill.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


class MemoryKills:
    """Counts kills from its creation on.

    Args:
        others: further files that count, such as those of a cgroup that is yet to be made.
    """

    def __init__(
        self, cgroups: Path = _CGROUPS, proc: Path = _PROC, others: Iterable[Path] = ()
    ) -> None:
        self._files = [proc / "vmstat", *_own_cgroup(cgroups, proc), *others]
        self._before = [_count(file) for file in self._files]

    def happened(self) -> bool:
        """Whether a counter has grown since."""
        return any(_count(file) > count for file, count in zip(self._files, self._before))


def _own_cgroup(cgroups: Path, proc: Path) -> list[Path]:
    """The counters of this process's cgroup, and of the container's."""
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
