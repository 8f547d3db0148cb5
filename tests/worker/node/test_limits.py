"""Limits of a node's ranks, held for real: processes, open files, disk."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from torchyard.shared.plan import InputPlan, LimitsPlan
from torchyard.worker.system import cgroups
from worker.bench import Bench

pytestmark = pytest.mark.faults

# Starts what starts two more, and so on. The limit is tested before it is relied upon.
_BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
"""

_THREADS = """
import threading, time
while True:
    threading.Thread(target=time.sleep, args=(5,)).start()
"""


def _require_a_limit_that_holds() -> None:
    """Nothing here starts a bomb where no cgroup was seen to refuse a process."""
    mark = f"probe-{os.getpid()}:0"
    try:
        if not cgroups.limit(mark, cgroups.Ceiling(processes=200)).processes:
            pytest.skip("no cgroup can count processes here")
        cgroups.allow_no_processes(mark)
        with cgroups.inside(mark), pytest.raises(BlockingIOError):
            os.posix_spawn("/bin/true", ["true"], {})
    finally:
        cgroups.remove(mark)


def test_a_fork_bomb_ends_its_own_job_with_its_cause(bench: Bench) -> None:
    _require_a_limit_that_holds()
    snapshot = bench.server.put_snapshot({"bomb.py": _BOMB})
    plan = bench.plan("exec python bomb.py", code=snapshot, limits=LimitsPlan(processes=200))
    bench.run(plan)
    error = bench.exit()["error"]
    assert error["code"] == "process_limit", error
    assert "more processes and threads than the 200 they may have" in error["message"]
    assert "torchyard.max_processes" in error["hint"]
    bench.wait_until_none_left(plan)


def test_a_rank_that_met_the_limit_and_ended_is_told_so(bench: Bench) -> None:
    _require_a_limit_that_holds()
    snapshot = bench.server.put_snapshot({"threads.py": _THREADS})
    bench.run(bench.plan("python threads.py", code=snapshot, limits=LimitsPlan(processes=150)))
    error = bench.exit()["error"]
    assert error["code"] == "process_limit", error


def test_ranks_have_the_open_files_of_the_job(bench: Bench) -> None:
    bench.run(bench.plan("ulimit -n; sleep 0.3; ulimit -Hn", limits=LimitsPlan(open_files=321)))
    assert bench.server.logs["user_logs/std_log.txt"] == b"321\n321\n"


def test_what_ranks_write_is_limited(bench: Bench) -> None:
    command = "head -c 30000000 /dev/zero > outputs/big; sleep 600"
    bench.run(bench.plan(command, limits=LimitsPlan(disk_bytes=20 << 20)))
    error = bench.exit()["error"]
    assert error["code"] == "disk_limit", error
    # Less than all of it, where the watch looks while it is being written.
    assert re.fullmatch(
        r"the ranks on node 0 wrote 2\d MiB, and may write 20 MiB", error["message"]
    ), error


def test_a_rank_within_its_limit_is_left_alone(bench: Bench) -> None:
    command = "head -c 3000000 /dev/zero > x; sleep 1.5"
    bench.run(bench.plan(command, limits=LimitsPlan(disk_bytes=4 << 20)))
    assert bench.exit()["error"] is None


def test_inputs_do_not_count_as_written(bench: Bench, tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    (source / "big").write_bytes(bytes(8 << 20))
    inputs = {"data": InputPlan("uri_folder", mode="download", source=str(source))}
    bench.run(bench.plan("sleep 2.5", inputs=inputs, limits=LimitsPlan(disk_bytes=4 << 20)))
    assert bench.exit()["error"] is None
