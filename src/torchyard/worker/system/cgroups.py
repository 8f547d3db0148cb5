"""A cgroup for the ranks of one node, where the machine lets us make one.

Owns: its folder, its limits, moving ranks into it, who is in it.
Leaves: ending them to processes.py.
Always: needs no root where the user's cgroup is delegated to the user; where none can be made,
ranks are found by the process tree and their mark alone. Whoever is born in a cgroup stays in it,
whatever it does to its parent, session, name or environment.

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
_OWN = Path("/proc/self/cgroup")


@contextmanager
def inside(mark: str) -> Iterator[bool]:
    """Be in the node's cgroup, made if need be: what is started meanwhile is born there.

    Gives whether there is one. The calling process is back where it was at the end.
    """
    folder = _folder(mark)
    entered = folder is not None and _make(folder) and _enter(folder)
    try:
        yield entered
    finally:
        if entered and folder is not None:
            _enter(folder.parent)


def limit(mark: str, cores: int, memory_bytes: int) -> list[str]:
    """Hold the node's cgroup to these, 0 for none; returns in words what is in force then.

    Only where the controllers are the user's to hand on, as in a container or a delegated unit;
    what the machine has no more of is no limit.
    """
    folder = _folder(mark)
    if folder is None or not _make(folder):
        return []
    # Forbidden while processes are in it, unless it is the top: then nothing can be limited here.
    _write(folder.parent / "cgroup.subtree_control", "+cpu +memory")
    held = []
    if 0 < cores < (os.cpu_count() or 1):
        if _write(folder / "cpu.max", f"{cores * _PERIOD_US} {_PERIOD_US}"):
            held.append("1 core" if cores == 1 else f"{cores} cores")
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 0 < memory_bytes < machine_bytes:
        if _write(folder / "memory.max", str(memory_bytes)):
            held.append(f"{memory_bytes / (1 << 30):g} GiB")
    return held


def members(mark: str) -> list[int]:
    """The processes in the node's cgroup and below it."""
    folder = _folder(mark)
    if folder is None or not folder.is_dir():
        return []
    found: list[int] = []
    for here, _, _ in os.walk(folder):
        try:
            found += map(int, Path(here, "cgroup.procs").read_text().split())
        except OSError:
            continue
    return found


def remove(mark: str) -> None:
    """Once nobody is in it."""
    folder = _folder(mark)
    if folder is None or not folder.is_dir():
        return
    for here, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(here)
        except OSError:
            pass  # Somebody is in it who can't be ended; it is empty some day.


def _folder(mark: str) -> Optional[Path]:
    root, own = _root(), _own()
    if root is None or own is None:
        return None
    # A rank that looks for its cgroup, as its heir does, is already in it.
    above = [part for part in own.split("/") if part and not part.startswith(_PREFIX)]
    return root.joinpath(*above, _PREFIX + mark.replace(":", "-"))


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


def _own() -> Optional[str]:
    try:
        lines = _OWN.read_text().splitlines()
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
        # Never made: a file that is not there is a controller that is not.
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
