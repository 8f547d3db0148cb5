"""What the files of a node say, also where a job has put something else in their place."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from torchyard.shared import processes
from torchyard.shared.node_records import NodeRecords, receipt

ALIVE = {"pid": os.getpid(), "start_time": processes.start_time(os.getpid())}
DEAD = {"pid": 1 << 22, "start_time": 1}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    folder = tmp_path / "node-0"
    folder.mkdir()
    return folder


def write(node: Path, **records: object) -> NodeRecords:
    for name, body in records.items():
        (node / f"{name}.json").write_text(json.dumps(body))
    return NodeRecords(str(node.parent))


def test_the_states_of_a_node(node: Path) -> None:
    assert write(node).state(0, ALIVE) == "running"
    assert write(node).state(0, DEAD) == "lost"
    assert write(node, worker={**ALIVE, "supervisor": ALIVE}).state(0, DEAD) == "running"
    assert write(node, worker={**DEAD, "supervisor": ALIVE}).state(0, DEAD) == "ending"
    assert write(node, worker={**DEAD, "supervisor": DEAD}).state(0, DEAD) == "lost"
    assert write(node, exit={}).state(0, DEAD) == "exited"


@pytest.mark.parametrize("text", ["", "[]", "{", "7", "[" * 100_000, '{"pid": "x"}'])
def test_what_is_not_a_record_counts_as_a_lost_worker(node: Path, text: str) -> None:
    (node / "worker.json").write_text(text)
    assert NodeRecords(str(node.parent)).state(0, DEAD) == "lost"


def test_links_pipes_and_devices_are_not_read(node: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps(ALIVE))
    (node / "worker.json").symlink_to(tmp_path / "other.json")
    assert NodeRecords(str(tmp_path)).worker(0) is None
    (node / "worker.json").unlink()
    os.mkfifo(node / "worker.json")
    assert NodeRecords(str(tmp_path)).worker(0) is None


def test_devices_of_a_plan_that_a_job_has_changed(tmp_path: Path) -> None:
    device = {"kind": "nvidia", "index": 1, "uuid": "GPU-1"}
    plan = {"devices": [[device, {"kind": 1}, "x"], "y", [device] * 1000, []]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    devices = NodeRecords(str(tmp_path)).devices(3)
    assert devices[:2] == [[device], []] and len(devices[2]) == 64
    assert NodeRecords(str(tmp_path / "none")).devices(2) == [[], []]


@pytest.mark.parametrize("process", [{}, {"pid": -1}, {"pid": 1 << 70, "start_time": "x"}])
def test_a_receipt_holds_numbers_alone(process: dict[str, object]) -> None:
    assert receipt(process) == {"pid": 0, "start_time": 0}
