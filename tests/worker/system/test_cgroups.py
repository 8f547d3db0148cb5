"""The node's cgroup: real where this machine permits one, and its place in every kind of tree."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchyard.worker.system import cgroups
from torchyard.worker.system.cgroups import Ceiling, InForce

# Ends by itself, so that a limit that does not hold does no harm.
_BOMB = """
import os, time
for _ in range(300):
    try:
        child = os.fork()
    except BlockingIOError:
        time.sleep(0.5)
        os._exit(9)
    if not child:
        time.sleep(3)
        os._exit(0)
"""


@pytest.fixture
def mark() -> str:
    return f"cgroup-test-{os.getpid()}:0"


def _counted(mark: str, processes: int) -> None:
    if not cgroups.limit(mark, Ceiling(processes=processes)).processes:
        cgroups.remove(mark)
        pytest.skip("no cgroup can count processes here")


def _end(mark: str) -> None:
    deadline = time.monotonic() + 60
    while (members := cgroups.members(mark)) and time.monotonic() < deadline:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    cgroups.remove(mark)


def test_processes_beyond_the_limit_are_refused_and_counted(mark: str) -> None:
    # This process is inside for a moment, with all its threads.
    limit = 20 + len(os.listdir("/proc/self/task"))
    _counted(mark, limit)
    try:
        assert cgroups.refused_processes(mark) == 0
        with cgroups.inside(mark):
            bomb = subprocess.Popen([sys.executable, "-I", "-S", "-c", _BOMB])
        assert os.getpid() not in cgroups.members(mark)
        assert bomb.wait(60) == 9
        assert cgroups.refused_processes(mark) > 0
        assert len(cgroups.members(mark)) <= limit
    finally:
        _end(mark)
    assert cgroups.members(mark) == []


def test_nothing_starts_once_no_processes_are_allowed(mark: str) -> None:
    _counted(mark, 20)
    try:
        cgroups.allow_no_processes(mark)
        with cgroups.inside(mark), pytest.raises(OSError, match="Resource temporarily unavailable"):
            subprocess.run(["true"], check=True)
    finally:
        cgroups.remove(mark)


def _machine(tmp_path: Path, current: str, controllers: str, *folders: str) -> Path:
    """A tree of version 2, of ordinary files; `proc` says that this process is in `current`."""
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    proc.mkdir()
    for folder in ("", *folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "cgroup.subtree_control").touch()
        (root / folder / "cgroup.procs").touch()
    (root / "cgroup.controllers").write_text(controllers)
    (proc / "mounts").write_text(f"cgroup2 {root} cgroup2 rw,nosuid 0 0\n")
    (proc / "cgroup").write_text(f"0::/{current}\n")
    return proc


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        ("", ""),
        ("torchyard-workers", ""),
        ("system.slice/torchyard.service/torchyard-workers", "system.slice/torchyard.service"),
        ("runner/job", "runner/job"),
        ("torchyard-runner.service/yard-a-0/torchyard-worker", "torchyard-runner.service/yard-a-0"),
        ("runner/job/torchyard-node-a-0", "runner/job"),
        ("torchyard-runner.service/job", "torchyard-runner.service/job"),
    ],
)
def test_a_node_is_beside_its_worker(tmp_path: Path, current: str, expected: str) -> None:
    proc = _machine(tmp_path, current, "cpu memory pids", current)
    (tree,) = cgroups._trees(proc)
    assert tree.folder("a:0") == tmp_path / "cgroup" / expected / "torchyard-node-a-0"


def test_limits_are_set_with_delegated_controllers(tmp_path: Path) -> None:
    proc = _machine(tmp_path, "user", "cpu memory pids", "user", "user/torchyard-node-a-0")
    folder = tmp_path / "cgroup" / "user" / "torchyard-node-a-0"
    for name in ("cpu.max", "memory.max", "memory.swap.max", "pids.max"):
        (folder / name).touch()
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = ("1 core",) if (os.cpu_count() or 1) > 1 else ()
    in_force = cgroups.limit("a:0", Ceiling(1, 1 << 28, 99), proc)
    assert in_force == InForce((*cores, "0.25 GiB", "99 processes"), (), True)
    assert (folder / "memory.max").read_text() == str(1 << 28)
    assert (folder / "pids.max").read_text() == "99"
    more_than_there_is = Ceiling(4096, machine_bytes)
    assert cgroups.limit("a:0", more_than_there_is, proc) == InForce()
    assert cgroups.limit("a:0", Ceiling(), proc) == InForce()


def test_a_limit_that_no_tree_can_hold_is_told(tmp_path: Path) -> None:
    proc = _machine(tmp_path, "", "cpu")
    in_force = cgroups.limit("a:0", Ceiling(processes=30, memory_bytes=1 << 30), proc)
    assert in_force.held == () and in_force.missing == ("1 GiB", "30 processes")
    assert not in_force.processes


def test_no_limit_is_set_beside_the_processes_of_a_unit(tmp_path: Path) -> None:
    """The kernel would take a limit of processes, and let none enter."""
    current = "system.slice/torchyard.service"
    proc = _machine(tmp_path, current, "cpu memory pids", current)
    folder = tmp_path / "cgroup" / current
    (folder / "cgroup.type").write_text("domain\n")
    (folder / "cgroup.procs").write_text("1234\n")
    in_force = cgroups.limit("a:0", Ceiling(processes=30), proc)
    if os.geteuid():
        assert in_force.missing == ("30 processes",)
    assert (folder / "cgroup.subtree_control").read_text() == ""


def test_without_any_cgroup_everything_is_missing(tmp_path: Path) -> None:
    in_force = cgroups.limit("a:0", Ceiling(processes=30), tmp_path)
    assert in_force.missing == ("30 processes",)
    with cgroups.inside("a:0", tmp_path) as entered:
        assert not entered
    assert cgroups.members("a:0", tmp_path) == []
