"""A cgroup for the ranks of one node, where the machine permits one.

Owns: its folders, its limits, moving ranks into it, listing its members, what it refused.
Leaves: ending them to processes.py, limits that need no cgroup to rank_limits.py.
Always: needs no root where the user's cgroup is delegated to the user; where none can be made,
ranks are found by the process tree and their mark alone. A process that starts in a cgroup stays
in it, whatever it does to its parent, session, name or environment.

A machine has one tree of cgroups (version 2), or one for each controller (version 1), or both: a
controller is in one of them only. The node's cgroup is a folder in each tree that has a part in it.

Source: the kernel's admin-guide/cgroup-v2.rst and cgroup-v1/; systemd's CGROUP_DELEGATION.md.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchyard.shared.cgroup_files import write

WORKERS = "torchyard-workers"
"""The part of a delegated cgroup that the server and its workers are in."""
# That of a cgroup which the runner made; see runner/cgroups.py.
_ASIDE = (WORKERS, "torchyard-worker")
_PREFIX = "torchyard-node-"
_PERIOD_US = 100_000
_UNITS = (".service", ".scope", ".slice")
_SELF = Path("/proc/self")
_CONTROLLERS = ("cpu", "memory", "pids")


@dataclass(frozen=True)
class Ceiling:
    """What the ranks of a node may have together; 0 for no limit. A thread is a process."""

    cores: int = 0
    memory_bytes: int = 0
    processes: int = 0


@dataclass(frozen=True)
class InForce:
    """Which limits hold, and which do not, in words for people."""

    held: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    processes: bool = False


@dataclass(frozen=True)
class _Tree:
    """A mounted tree of cgroups; `current` is where this process is in it. Version 2 has every
    `controllers` that no tree of version 1 has.
    """

    root: Path
    current: Path
    version: int
    controllers: tuple[str, ...] = ()

    def folder(self, mark: str) -> Path:
        """The node's folder in this tree; a process of a rank is already in it."""
        parts = self.current.relative_to(self.root).parts
        parents = [part for part in parts if not part.startswith(_PREFIX) and part not in _ASIDE]
        name = _PREFIX + mark.replace(":", "-")
        # Another's cgroup has processes, and then allows no limits below it; the root always does.
        borrowed = os.geteuid() == 0 and self.version == 2 and not set(_ASIDE) & set(parts)
        if borrowed and parents and parents[-1].endswith(_UNITS):
            return self.root / name
        return self.root.joinpath(*parents, name)


@contextmanager
def inside(mark: str, proc: Path = _SELF) -> Iterator[bool]:
    """Start processes in the node's cgroup, which is made when it is not there.

    Yields whether there is one. At the end the calling process returns to its own.
    """
    entered = []
    for tree in _trees(proc):
        folder = tree.folder(mark)
        # In trees of version 1 only what has a limit is there.
        exists = folder.is_dir() if tree.version == 1 else _make(folder)
        if exists and _enter(folder):
            entered.append(tree)
    try:
        yield bool(entered)
    finally:
        for tree in entered:
            _enter(tree.current)


def limit(mark: str, ceiling: Ceiling, proc: Path = _SELF) -> InForce:
    """Limit the node's cgroup; returns which limits hold.

    Only where the user may delegate the controllers, as in a container or a delegated unit; no
    limit is set to all that the machine has, or more.
    """
    trees = _trees(proc)
    enforced: list[str] = []
    missing: list[str] = []
    for controller, words in _requested(ceiling).items():
        done = any(_limit(tree, mark, controller, ceiling) for tree in trees)
        (enforced if done else missing).append(words)
    processes = _processes(ceiling.processes)
    return InForce(tuple(enforced), tuple(missing), processes in enforced)


def holds(proc: Path = _SELF) -> dict[str, bool]:
    """Which of cpu, memory and pids can be limited for nodes of workers that start here."""
    mark = f"probe-{os.getpid()}-{threading.get_ident()}:0"
    ceiling = Ceiling(cores=1, memory_bytes=1 << 30, processes=1000)
    try:
        trees = _trees(proc)
        return {
            controller: any(_limit(tree, mark, controller, ceiling) for tree in trees)
            for controller in _CONTROLLERS
        }
    finally:
        remove(mark, proc)


def members(mark: str, proc: Path = _SELF) -> list[int]:
    """The processes in the node's cgroup and below it."""
    pids: set[int] = set()
    for folder in folders_of(mark, proc):
        for path, _, _ in os.walk(folder):
            try:
                pids.update(map(int, Path(path, "cgroup.procs").read_text().split()))
            except OSError:
                continue
    return sorted(pids)


def remove(mark: str, proc: Path = _SELF) -> None:
    """Remove the node's cgroup, once it is empty."""
    for folder in folders_of(mark, proc):
        for path, _, _ in os.walk(folder, topdown=False):
            try:
                os.rmdir(path)
            except OSError:
                pass  # A process in it can't be ended, and will end some day.


def refused_processes(mark: str, proc: Path = _SELF) -> int:
    """How often a process could not be started because the node had as many as it may have."""
    return sum(_count(folder / "pids.events", "max") for folder in folders_of(mark, proc))


def allow_no_processes(mark: str, proc: Path = _SELF) -> None:
    """Let nothing be started in the node's cgroup any more, so that it can be ended.

    What starts processes faster than they can be ended would otherwise never end.
    """
    for folder in folders_of(mark, proc):
        write(folder / "pids.max", "0")


def memory_events(mark: str, proc: Path = _SELF) -> list[Path]:
    """The files that count who was killed because the node's memory ran out."""
    folders = [tree.folder(mark) for tree in _trees(proc)]
    return [folder / name for folder in folders for name in ("memory.events", "memory.oom_control")]


def _requested(ceiling: Ceiling) -> dict[str, str]:
    """The limits in words, by controller."""
    requested = {}
    if 0 < ceiling.cores < (os.cpu_count() or 1):
        requested["cpu"] = "1 core" if ceiling.cores == 1 else f"{ceiling.cores} cores"
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 0 < ceiling.memory_bytes < machine_bytes:
        requested["memory"] = f"{ceiling.memory_bytes / (1 << 30):g} GiB"
    if ceiling.processes > 0:
        requested["pids"] = _processes(ceiling.processes)
    return requested


def _processes(count: int) -> str:
    return f"{count:,} processes"


def _limit(tree: _Tree, mark: str, controller: str, ceiling: Ceiling) -> bool:
    if controller not in tree.controllers:
        return False
    folder = tree.folder(mark)
    if not _make(folder):
        return False
    if tree.version == 2 and not _open_controller(folder.parent, controller):
        return False
    if "invalid" in _words(folder / "cgroup.type"):
        return False  # processes beside it: none could enter it
    cpu_us = ceiling.cores * _PERIOD_US
    if controller == "pids":
        return write(folder / "pids.max", str(ceiling.processes))
    if tree.version == 2:
        if controller == "cpu":
            return write(folder / "cpu.max", f"{cpu_us} {_PERIOD_US}")
        # With swap, a rank would crawl instead of being ended with its cause.
        write(folder / "memory.swap.max", "0")
        return write(folder / "memory.max", str(ceiling.memory_bytes))
    if controller == "cpu":
        return write(folder / "cpu.cfs_period_us", str(_PERIOD_US)) and write(
            folder / "cpu.cfs_quota_us", str(cpu_us)
        )
    done = write(folder / "memory.limit_in_bytes", str(ceiling.memory_bytes))
    write(folder / "memory.memsw.limit_in_bytes", str(ceiling.memory_bytes))
    return done


def _open_controller(parent: Path, controller: str) -> bool:
    """Let the folders in `parent` limit this; forbidden while processes are in it, but the root.

    For some controllers the kernel would allow it, and then let no process enter the folders.
    """
    is_root = not (parent / "cgroup.type").exists()
    if not is_root and _words(parent / "cgroup.procs") and not _divide(parent):
        return False
    file = parent / "cgroup.subtree_control"
    return controller in _words(file) or write(file, f"+{controller}")


def _divide(parent: Path) -> bool:
    """Move the processes of a cgroup made for this worker aside, into a folder in it.

    Never those of a unit: systemd could not start it again while jobs of it run.
    """
    try:
        owner = parent.stat().st_uid
    except OSError:
        return False
    if owner != os.geteuid() or owner == 0 or parent.name.endswith(_UNITS):
        return False
    aside = parent / WORKERS
    if not _make(aside):
        return False
    moved = [write(aside / "cgroup.procs", pid) for pid in _words(parent / "cgroup.procs")]
    return any(moved)


def _trees(proc: Path) -> list[_Tree]:
    """The trees that can be written to, version 2 first."""
    own_paths: dict[str, str] = {}
    for line in _lines(proc / "cgroup"):
        _, kinds, path = (*line.split(":", 2), "", "")[:3]
        own_paths.update(dict.fromkeys(kinds.split(","), path))
    mounted = _mounted_here() if proc is _SELF else _mounted(proc)
    return [
        _Tree(root, _below(root, own_paths[key]), version, controllers)
        for key, (root, version, controllers) in mounted.items()
        if key in own_paths
    ]


def _mounted(proc: Path) -> dict[str, tuple[Path, int, tuple[str, ...]]]:
    """Return root, version and controllers of each tree.

    The key is the tree's first controller, or empty for version 2.
    """
    trees: dict[str, tuple[Path, int, tuple[str, ...]]] = {}
    for line in _lines(proc / "mounts"):
        fields = line.split(" ")
        if len(fields) < 4 or fields[2] not in ("cgroup", "cgroup2"):
            continue
        root, options = Path(fields[1]), fields[3].split(",")
        if "rw" not in options:
            continue
        if fields[2] == "cgroup2":
            trees.setdefault("", (root, 2, tuple(_words(root / "cgroup.controllers"))))
        else:
            controllers = tuple(kind for kind in _CONTROLLERS if kind in options)
            if controllers:
                trees.setdefault(controllers[0], (root, 1, controllers))
    return dict(sorted(trees.items(), key=lambda tree: -tree[1][1]))


@functools.lru_cache(maxsize=1)
def _mounted_here() -> dict[str, tuple[Path, int, tuple[str, ...]]]:
    """Cached: a worker calls it nine times, and trees are mounted when a machine starts."""
    return _mounted(_SELF)


def folders_of(mark: str, proc: Path = _SELF) -> list[Path]:
    """The node's folders that there are, that of version 2 first."""
    folders = [tree.folder(mark) for tree in _trees(proc)]
    return [folder for folder in folders if folder.is_dir()]


def _below(root: Path, path: str) -> Path:
    # In a container, `/../…` is a cgroup outside of it.
    return root.joinpath(*(part for part in path.split("/") if part not in ("", "..")))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    return [word for line in _lines(file) for word in line.split()]


def _count(file: Path, key: str) -> int:
    for line in _lines(file):
        name, _, number = line.partition(" ")
        if name == key and number.isdigit():
            return int(number)
    return 0


def _make(folder: Path) -> bool:
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return False
    return True


def _enter(folder: Path) -> bool:
    return write(folder / "cgroup.procs", str(os.getpid()))
