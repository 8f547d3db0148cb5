"""The kernel's own out-of-memory killer, on a rank in a memory cgroup with a small limit."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.bench import Bench

pytestmark = pytest.mark.faults

_LIMIT_BYTES = 96 << 20
_CGROUPS = Path("/sys/fs/cgroup")
# Everything that is taken is touched, or the kernel would give none of it.
_EAT = "taken = []\nwhile True:\n    taken.append(bytearray(b'x') * (8 << 20))\n"


def _memory_root() -> tuple[Path, str, str]:
    """This process's memory cgroup, and the names of the files for the limit and for swap."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        if "memory" in kinds.split(","):
            above = _CGROUPS / "memory" / path.lstrip("/")
            return above, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
    above = _CGROUPS / path.lstrip("/")
    return above, "memory.max", "memory.swap.max"


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup with a small limit; made beside the test, not below it, in version 2."""
    above, limit, swap = _memory_root()
    folder = above / f"torchyard-memory-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        (folder / limit).write_text(str(_LIMIT_BYTES))
    except OSError as error:
        folder.rmdir()
        pytest.skip(f"a memory cgroup can't be limited here: {error}")
    if (folder / swap).exists():
        (folder / swap).write_text(str(_LIMIT_BYTES if "memsw" in swap else 0))
    yield folder
    for pid in (folder / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            (above / "cgroup.procs").write_text(pid)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.05)  # who is killed leaves a moment later
    folder.rmdir()


def test_a_rank_that_runs_out_of_memory_is_named(bench: Bench, cgroup: Path) -> None:
    snapshot = bench.server.put_snapshot({"eat.py": _EAT})
    command = (
        f"test $RANK = 1 && echo $$ > {cgroup}/cgroup.procs && exec python eat.py; exec sleep 321"
    )
    plan = bench.plan(command, code=snapshot, processes_per_node=2)
    bench.run(plan, timeout_s=60)
    error = bench.exit()["error"]
    assert error["code"] == "out_of_memory", error
    assert error["message"].startswith("rank 1 on node 0 was killed by signal 9 (SIGKILL)")
    assert "ran out of memory" in error["message"] and "data-loader workers" in error["hint"]
    assert error["details"]["rank"] == 1
    bench.wait_until_none_left(plan)


def test_a_child_that_runs_out_of_memory_is_the_cause(bench: Bench, cgroup: Path) -> None:
    """The shell survives and reports it by exit code 137 only."""
    snapshot = bench.server.put_snapshot({"eat.py": _EAT})
    command = f"(echo $BASHPID > {cgroup}/cgroup.procs; exec python eat.py); exit $?"
    bench.run(bench.plan(command, code=snapshot), timeout_s=60)
    error = bench.exit()["error"]
    assert error["code"] == "out_of_memory", error


def test_a_manual_kill_is_not_reported_as_out_of_memory(bench: Bench, cgroup: Path) -> None:
    bench.run(bench.plan(f"echo $$ > {cgroup}/cgroup.procs; kill -9 $$"), timeout_s=60)
    assert bench.exit()["error"]["code"] == "killed"
