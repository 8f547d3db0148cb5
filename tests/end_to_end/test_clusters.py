"""Clusters under a random load, and two servers that share one machine's devices."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, remove, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(1200)]

JOBS, MOST, IDLE_S = 200, 4, 3
# A scheduler's round and a machine that other tests use, too; a forgotten job waits for ever.
FORGOTTEN_S = 20.0


def test_from_zero_to_two_and_back(yard: Yard) -> None:
    create(yard, "pair", "--max-instances", "2", "--idle-time-before-scale-down", "1")
    yard.post("jobs", {
        "name": "pair-1", "command": "sleep 2", "environment": "python", "compute": "pair",
        "resources": {"instance_count": 2},
    })  # fmt: skip
    job = yard.completed("pair-1")
    stages = {stage["name"]: stage for stage in job["stages"]}
    assert list(stages)[:3] == ["Preparing", "Scaling", "Running"]
    wait_until(lambda: yard.get("computes/pair")["current_node_count"] == 0, 30, "back to zero")
    counts = yard.get("computes/pair/history")["counts"]
    assert [(count["current"], count["running"]) for count in counts] == [(2, 2), (2, 0), (0, 0)]
    assert "2 of them new" in counts[0]["reason"] and "idle for 1 s" in counts[2]["reason"]
    usage = yard.get("computes/pair/history")["usage"]
    assert sum(day["node_hours"] for day in usage) * 3600 > 2 * 2
    yard("compute", "delete", "-n", "pair", "--yes")


@pytest.mark.long
def test_a_random_load_of_two_hundred_jobs(yard: Yard) -> None:
    create(yard, "load", "--max-instances", str(MOST), "--idle-time-before-scale-down", str(IDLE_S))
    dice = random.Random(6)
    requested_nodes = {f"load-{n:03}": dice.choice([1, 1, 1, 2, 2, 3, 4]) for n in range(JOBS)}
    burst = 0
    for name, nodes in requested_nodes.items():
        yard.post("jobs", {
            "name": name, "command": f"sleep {dice.choice([0.0, 0.05, 0.2])}",
            "environment": "python", "compute": "load", "resources": {"instance_count": nodes},
            "properties": {"torchyard.preflight": "off"},
        })  # fmt: skip
        burst -= 1
        if burst < 0:
            burst = dice.randint(5, 60)
            wait_until(lambda: len(live(yard)) < dice.choice([1, 20]), 400, "the queue is shorter")
    wait_until(lambda: not live(yard), 900, "all have ended")
    wait_until(lambda: yard.get("computes/load")["current_node_count"] == 0, 60, "back to zero")

    counts = yard.get("computes/load/history")["counts"]
    assert max(count["current"] for count in counts) == MOST
    assert all(0 <= count["running"] <= count["current"] <= MOST for count in counts)
    assert counts[-1]["current"] == 0
    jobs = [yard.job(name) for name in requested_nodes]
    assert {job["status"] for job in jobs} == {"Completed"}
    worst_s, idle_s = waited_beside_free_nodes(jobs, counts)
    busy_s = sum(day["busy_hours"] for day in yard.get("computes/load/history")["usage"]) * 3600
    print(
        f"\n{len(counts)} changes of the count; {busy_s:.0f} node-seconds with jobs; the head of "
        f"the queue waited beside free nodes for {idle_s:.1f} s in all, {worst_s:.2f} s at once"
    )
    assert worst_s < FORGOTTEN_S
    yard("compute", "delete", "-n", "load", "--yes")


def create(yard: Yard, name: str, *options: str) -> None:
    yard("compute", "create", "-n", name, "--type", "amlcompute", *options)


def live(yard: Yard) -> list[str]:
    there = yard.get("jobs?limit=1000")["value"]
    ended = ("Completed", "Failed", "Canceled")
    return [job["name"] for job in there if job["compute"] == "load" and job["status"] not in ended]


def waited_beside_free_nodes(
    jobs: list[dict[str, Any]], counts: list[dict[str, Any]]
) -> tuple[float, float]:
    """How long the head of the queue waited though its nodes were free: at once, and in all."""
    moments = []
    for index, job in enumerate(jobs):
        scaling = next(stage for stage in job["stages"] if stage["name"] == "Scaling")
        moments.append((at(scaling["start"]), "comes", index))
        moments.append((at(scaling["end"]), "goes", index))
    moments += [(at(count["at"]), "running", count["running"]) for count in counts]
    queue: set[int] = set()
    running, since, worst, total = 0, None, 0.0, 0.0
    for moment, kind, value in sorted(moments, key=lambda change: change[0]):
        if kind == "running":
            running = value
        elif kind == "comes":
            queue.add(value)
        else:
            queue.discard(value)
        fits = bool(queue) and nodes_of(jobs[min(queue)]) <= MOST - running
        if since is not None:
            span = (moment - since).total_seconds()
            total, worst = total + span, max(worst, span)
        since = moment if fits else None
    return worst, total


def nodes_of(job: dict[str, Any]) -> int:
    return int(job["resources"]["instance_count"] if "resources" in job else job["node_count"])


def at(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@dataclass(frozen=True)
class OfOneMachine(Yard):
    """A server of several that see the same pretended GPUs."""

    extra: dict[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        return {**super().variables, **self.extra}


@pytest.fixture
def pair() -> Iterator[list[OfOneMachine]]:
    folder = Path(tempfile.mkdtemp(prefix="torchyard-two-servers-"))
    extra = {"TORCHYARD_DEVICES": "3", "TORCHYARD_DEVICE_LOCKS": str(folder / "locks")}
    yards = [OfOneMachine(folder / f"home-{n}", "", extra) for n in range(2)]
    try:
        for server in yards:
            server("server", "start")
        yield yards
        for server in yards:
            server("server", "stop")
    finally:
        for server in yards:
            for process in server.processes():
                with contextlib.suppress(OSError):
                    os.kill(int(process.split()[0]), signal.SIGKILL)
        remove(folder)


_SCRIPT = """
import os, sys, time
marks = sys.argv[1]
for number in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
    os.close(os.open(f"{marks}/{number}", os.O_CREAT | os.O_EXCL))
time.sleep(float(sys.argv[2]))
for number in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
    os.unlink(f"{marks}/{number}")
"""


@pytest.mark.long
def test_two_servers_never_share_a_device(pair: list[OfOneMachine]) -> None:
    """Each with more jobs than there are devices; one server is killed and started meanwhile."""
    marks = pair[0].home.parent / "marks"
    marks.mkdir()
    script = pair[0].home.parent / "script.py"
    script.write_text(_SCRIPT)
    dice = random.Random(3)
    names = [f"shared-{n:02}" for n in range(15)]
    for name in names:
        for server in pair:
            server.post("jobs", {
                "name": name, "command": f"python {script} {marks} {dice.choice([0.1, 0.5, 2])}",
                "environment": "python", "compute": "local",
                "properties": {"torchyard.gpus": str(dice.choice([1, 1, 2, 3]))},
            })  # fmt: skip
    pair[0].kill_server()
    pair[0]("server", "start")
    for name in names:
        for server in pair:
            # A job that got a device that another one has fails at its mark.
            server.completed(name)
    assert list(marks.iterdir()) == []
