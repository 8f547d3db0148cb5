"""A cgroup for the ranks of one node, where the machine permits one.

Owns: its folder, its limits, moving ranks into it, listing its members.
Leaves: ending them to processes.py.
Always: needs no root where the user's cgroup is delegated to the user; where none can be made,
ranks are found by the process tree and their mark alone. A process that starts in a cgroup stays
in it, whatever it does to its parent, session, name or environment.

Source: the kernel's admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Optional

_PREFIX = "torchyard-"
_PERIOD_US = 100_000
_MOUNTS = Path("/proc/self/mounts")
_OWN_CGROUP = Path("/proc/self/cgroup")


@contextmanager
def inside(mark: str) -> Iterator[bool]:
    """Start processes in the node's cgroup, which is made when it is not there.

    Yields whether there is one. At the end the calling process returns to its own.
    """
    folder = _folder(mark)
    entered = folder is not None and _make(folder) and _enter(folder)
    try:
        yield entered
    finally:
        if entered and folder is not None:
            _enter(folder.parent)


def limit(mark: str, cores: int, memory_bytes: int) -> list[str]:
    """Limit the node's cgroup, 0 for no limit; returns the limits in force, for people.

    Only where the user may delegate the controllers, as in a container or a delegated unit; no
    limit is set to all that the machine has, or more.
    """
    folder = _folder(mark)
    if folder is None or not _make(folder):
        return []
    # Forbidden while processes are in it, unless it is the root: then no limit can be set here.
    _write(folder.parent / "cgroup.subtree_control", "+cpu +memory")
    limits = []
    if 0 < cores < (os.cpu_count() or 1):
        if _write(folder / "cpu.max", f"{cores * _PERIOD_US} {_PERIOD_US}"):
            limits.append("1 core" if cores == 1 else f"{cores} cores")
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 0 < memory_bytes < machine_bytes:
        if _write(folder / "memory.max", str(memory_bytes)):
            limits.append(f"{memory_bytes / (1 << 30):g} GiB")
    return limits


def members(mark: str) -> list[int]:
    """The processes in the node's cgroup and below it."""
    folder = _folder(mark)
    if folder is None or not folder.is_dir():
        return []
    pids: list[int] = []
    for path, _, _ in os.walk(folder):
        try:
            pids += map(int, Path(path, "cgroup.procs").read_text().split())
        except OSError:
            continue
    return pids


def remove(mark: str) -> None:
    """Remove the node's cgroup, once it is empty."""
    folder = _folder(mark)
    if folder is None or not folder.is_dir():
        return
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            pass  # A process in it can't be ended, and will end some day.


def _folder(mark: str) -> Optional[Path]:
    root, own_path = _root(), _own_path()
    if root is None or own_path is None:
        return None
    # A process of a rank is already in it.
    parents = [part for part in own_path.split("/") if part and not part.startswith(_PREFIX)]
    return root.joinpath(*parents, _PREFIX + mark.replace(":", "-"))


def _root() -> Optional[Path]:
    """Where cgroup v2 is mounted, alone or beside v1."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split(" ")
        if len(fields) > 3 and fields[2] == "cgroup2" and "rw" in fields[3].split(","):
            return Path(fields[1])
    return None


def _own_path() -> Optional[str]:
    try:
        lines = _OWN_CGROUP.read_text().splitlines()
    except OSError:
        return None
    return next((line[3:] for line in lines if line.startswith("0::")), None)


def _make(folder: Path) -> bool:
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return False
    return True


def _write(file: Path, text: str) -> bool:
    try:
        # Not created: a missing file means that the controller is missing.
        descriptor = os.open(file, os.O_WRONLY)
    except OSError:
        return False
    try:
        return os.write(descriptor, text.encode()) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _enter(folder: Path) -> bool:
    try:
        (folder / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return False
    return True
