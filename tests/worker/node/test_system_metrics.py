"""What a real worker samples of a node and its ranks, and what it must not hold up."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from torchyard.executors.local import LocalExecutor
from torchyard.shared.plan import DevicePlan, LaunchPlan
from torchyard.worker.node.system_metrics import Places, SystemMetrics
from worker.bench import Bench

pytestmark = pytest.mark.slow
_BURN = "import time\nwhile time.process_time() < 6: pass\n"


def figures(bench: Bench, node: int = 0) -> dict[str, list[dict[str, Any]]]:
    """The points that the server has, by key."""
    points: dict[str, list[dict[str, Any]]] = {}
    for record in bench.server.history.get(node, []):
        points.setdefault(record["key"], []).append(record)
    return points


def test_a_node_and_its_ranks_are_sampled_while_they_run(bench: Bench) -> None:
    snapshot = bench.server.put_snapshot({"burn.py": _BURN})
    command = f"exec {sys.executable} burn.py"
    plan = bench.plan(command, code=snapshot, processes_per_node=2, system_metrics_s=1.0)
    bench.run(plan, timeout_s=120)
    points = figures(bench)
    assert {key for key in points if key.startswith("system/rank-")} == {
        f"system/rank-{rank}/process_{name}"
        for rank in (0, 1)
        for name in ("cpu_percentage", "memory_rss_megabytes")
    }
    assert {
        "system/node-0/cpu_utilization_percentage",
        "system/node-0/system_memory_usage_megabytes",
        "system/node-0/disk_available_megabytes",
        "system/node-0/network_receive_megabytes",
        "system/node-0/job_cpu_percentage",
        "system/node-0/job_memory_usage_megabytes",
    } <= set(points)
    shares = [point["value"] for point in points["system/rank-1/process_cpu_percentage"]]
    assert max(shares) > 0.5
    steps = [point["step"] for point in points["system/node-0/cpu_utilization_percentage"]]
    assert steps == list(range(len(steps)))


def test_nothing_is_sampled_without_an_interval(bench: Bench) -> None:
    bench.run(bench.plan("sleep 3"))
    assert not figures(bench)


def test_a_hanging_nvidia_smi_does_not_hold_up_the_end(bench: Bench, tmp_path: Path) -> None:
    called = tmp_path / "called"
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntrap '' TERM INT\ntouch {called}\nwhile :; do sleep 1; done\n")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    bench.executor = LocalExecutor(bench.home, {**os.environ, "PATH": path})
    wait = f"while [ ! -e {called} ]; do sleep 0.05; done; date +%s.%N"
    plan = bench.plan(
        wait,
        system_metrics_s=1.0,
        grace_s=300.0,
        devices=[[DevicePlan("nvidia", 0, "GPU-0a")]],
    )
    # The grace of 300 s would be waited for, were the program one of the ranks' processes.
    bench.run(plan, timeout_s=120)
    assert bench.exit()["exit_code"] == 0


def test_points_of_a_later_attempt_come_after_the_others(tmp_path: Path) -> None:
    received: list[dict[str, Any]] = []
    plan = LaunchPlan(
        "a", 2, "job", "w", "e", "", "http://x", "t", "r", str(tmp_path), system_metrics_s=0.01
    )
    sampler = SystemMetrics(plan, 0, Places(tmp_path), dict, received.extend)
    sampler.start()
    eventually(lambda: received, "a sample")
    sampler.close()
    assert received[0]["step"] == 10_000_000
    assert received[0]["key"].startswith("system/node-0/")


def test_a_full_disk_costs_figures_and_nothing_else(tmp_path: Path) -> None:
    tries = []

    def keep(records: list[dict[str, Any]]) -> None:
        tries.append(records)
        raise OSError("no space left")

    plan = LaunchPlan(
        "a", 1, "job", "w", "e", "", "http://x", "t", "r", str(tmp_path), system_metrics_s=0.01
    )
    sampler = SystemMetrics(plan, 0, Places(tmp_path), dict, keep)
    sampler.start()
    eventually(lambda: len(tries) >= 2, "a second try")
    sampler.close()


def test_sampling_that_costs_much_becomes_rarer(tmp_path: Path) -> None:
    times: list[float] = []

    def ranks() -> dict[int, int]:
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        times.append(time.monotonic())
        return {}

    plan = LaunchPlan(
        "a", 1, "job", "w", "e", "", "http://x", "t", "r", str(tmp_path), system_metrics_s=0.01
    )
    sampler = SystemMetrics(plan, 0, Places(tmp_path), ranks, lambda records: None)
    sampler.start()
    eventually(lambda: len(times) >= 3, "three samples")
    sampler.close()
    # Of 10 ms each, half a percent of a core.
    assert times[2] - times[1] >= 2.0
