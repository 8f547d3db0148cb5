"""A cgroup for each node, made by root and handed to the account.

Owns: making it, its limits, removing it with what still runs in it.
Leaves: the groups that a worker makes below it to worker/system/cgroups.py.
Always: a limit that is set here is root's: a job can neither raise nor leave it. Where there is no
cgroup v2, or no controller, there is none. The runner never moves itself out of the group in which
systemd starts its unit: while jobs run below, systemd could not start it there again.

    <what the unit delegates>/yard-runner/               the runner, for the kernel wants its
                                                         processes in leaves; systemd 254 puts it
                                                         there (`DelegateSubgroup=`)
                              yard-<attempt>-<node>/     limits; the account may make groups here
                                  torchyard-worker/      the worker and its supervisor

Source: the kernel's admin-guide/cgroup-v2.rst, "Delegation".
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from torchyard.shared.cgroup_files import write

_MOUNTS = Path("/proc/self/mounts")
_OWN = Path("/proc/self/cgroup")
_PERIOD_US = 100_000
_DELEGATED = ("", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control")
_CONTROLLERS = ("cpu", "memory", "pids")
_END_LIMIT_S = 5.0
_LEAVE_LIMIT_S = 1.0
WORKER = "torchyard-worker"
RUNNER = "yard-runner"
_UNIT = ".service"


def settle() -> bool:
    """Move a runner that no unit started into a leaf, so that limits can be set beside it.

    Returns whether it was moved; then `leave` undoes it.
    """
    parent = own()
    if parent is None or _own_path() == parent / RUNNER:
        return False
    try:
        (parent / RUNNER).mkdir(exist_ok=True)
    except OSError:
        return False  # `yard-runner check` says that no limit holds
    return enter(parent / RUNNER)


def leave() -> bool:
    """Move the runner out of its leaf, and remove that; False if it is still needed.

    It is while other processes are in it, and while jobs run beside it: outside the root, the
    kernel lets no process into a group that has controllers for the groups below it.
    """
    parent = own()
    if parent is None or _own_path() != parent / RUNNER:
        return False
    leaf = parent / RUNNER
    deadline = time.monotonic() + _LEAVE_LIMIT_S
    while _processes(leaf) - {os.getpid()}:  # answers that are still being given
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    if not enter(parent):
        if any(group.is_dir() and group != leaf for group in parent.iterdir()):
            return False
        for controller in _CONTROLLERS:
            write(parent / "cgroup.subtree_control", f"-{controller}")
        if not enter(parent):
            return False
    try:
        leaf.rmdir()
    except OSError:
        return False  # another runner has just begun
    return True


def _processes(group: Path) -> set[int]:
    try:
        return set(map(int, (group / "cgroup.procs").read_text().split()))
    except OSError:
        return set()


def own() -> Path | None:
    """The group that was delegated to the runner, if cgroups can be written here.

    None also in the group of a unit, where systemd before 254 starts it: systemd can't start it
    there again once groups beside it have controllers and jobs.
    """
    group = _own_path()
    if group is None or group.name == RUNNER:
        return None if group is None else group.parent
    return None if group.name.endswith(_UNIT) else group


def _own_path() -> Path | None:
    """The group that this process is in, if groups can be made where it is mounted."""
    try:
        mounts = _MOUNTS.read_text().splitlines()
        lines = _OWN.read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    for line in mounts:
        fields = line.split(" ")
        if path is not None and fields[2] == "cgroup2" and "rw" in fields[3].split(","):
            return Path(fields[1], path.lstrip("/"))
    return None


def make(attempt: str, node: int, uid: int, gid: int, limits: Mapping[str, int]) -> Path | None:
    """The node's group, for the account; None where there can't be one."""
    folder = _folder(attempt, node)
    if folder is None:
        return None
    try:
        folder.mkdir(exist_ok=True)
        for controller in _CONTROLLERS:
            write(folder.parent / "cgroup.subtree_control", f"+{controller}")
        _limit(folder, limits)
        worker = folder / WORKER
        worker.mkdir(exist_ok=True)
        for group in (folder, worker):
            for name in _DELEGATED:
                os.chown(group / name, uid, gid)
    except OSError:
        return None
    return worker


def enter(group: Path | None) -> bool:
    """Move this process into it; whether the kernel took it."""
    return group is not None and write(group / "cgroup.procs", str(os.getpid()))


def remove(attempt: str, node: int) -> bool:
    """End what still runs in the node's group, and remove it; False if something does not end."""
    folder = _folder(attempt, node)
    if folder is None or not folder.is_dir():
        return True
    write(folder / "cgroup.kill", "1")
    deadline = time.monotonic() + _END_LIMIT_S
    while True:
        _remove_folders(folder)
        if not folder.exists() or time.monotonic() > deadline:
            return not folder.exists()
        time.sleep(0.02)


def remove_empty(kind: str) -> None:
    """Remove the groups of one kind in which nothing runs; the kernel keeps the others."""
    parent = own()
    for folder in parent.glob(f"yard-{kind}-*") if parent is not None else ():
        _remove_folders(folder)


def _remove_folders(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            pass  # a process in it has not ended yet


def _limit(folder: Path, limits: Mapping[str, int]) -> None:
    if limits.get("cores"):
        write(folder / "cpu.max", f"{limits['cores'] * _PERIOD_US} {_PERIOD_US}")
    if limits.get("memory_bytes"):
        write(folder / "memory.max", str(limits["memory_bytes"]))
    if limits.get("processes"):
        write(folder / "pids.max", str(limits["processes"]))


def _folder(attempt: str, node: int) -> Path | None:
    parent = own()
    return None if parent is None else parent / f"yard-{attempt}-{node}"
