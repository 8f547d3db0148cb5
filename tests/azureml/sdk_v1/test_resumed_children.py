"""What a HyperDriveConfig takes from children of earlier runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs import support
from sweeps.running.sweep_lab import SweepLab
from torchyard.azureml.sdk_v1 import resumed_children
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.files import artifacts
from torchyard.jobs.scheduler import Scheduler
from torchyard.sweeps import actions as sweeps

DOCUMENT: dict[str, Any] = {
    "type": sweeps.TYPE,
    "name": "again",
    "trial": {"command": "python train.py --lr ${{search_space.lr}}", "environment": "python"},
    "search_space": {"lr": {"type": "uniform", "min_value": 0.01, "max_value": 0.1}},
    "sampling_algorithm": {"type": "random"},
    "objective": {"goal": "minimize", "primary_metric": "loss"},
    "limits": {"max_total_trials": 4, "max_concurrent_trials": 2},
}


@pytest.fixture
def lab(tmp_path: Path, db: Database, clock: FakeClock) -> Iterator[SweepLab]:
    services = support.make_services(tmp_path, db, clock)
    executor = FakeExecutor()
    scheduler = Scheduler(services, executor, "http://127.0.0.1:1")
    made = SweepLab(services, scheduler, clock, executor)
    made.create()
    made.run(lambda parameters: float(parameters["lr"]))
    yield made
    made.keeper.stop()


def resuming(lab: SweepLab, *numbers: int) -> dict[str, Any]:
    config = {
        resumed_children.RESUME_CHILDREN: [{"run_id": lab.job(number).name} for number in numbers]
    }
    document = resumed_children.with_earlier_runs(lab.services, support.WORKSPACE, config, DOCUMENT)
    sweeps.create(lab.services, support.WORKSPACE, document, support.ME)
    return document


def test_a_child_without_outputs_gives_its_parameters(lab: SweepLab) -> None:
    document = resuming(lab, 0)
    assert document["torchyard"]["warm_start"] == [dict(lab.trials[0].parameters)]
    assert document["trial"] == DOCUMENT["trial"] and "inputs" not in document


def test_children_with_outputs_are_read_beside_others(lab: SweepLab) -> None:
    with artifacts.writing(lab.services.datastores, lab.job(1), "outputs/model.pt") as writing:
        writing.write(b"1")
    document = resuming(lab, 0, 1)
    assert list(document["inputs"]) == ["resumed_1"]
    command = document["trial"]["command"]
    assert "*_1) set -- --resume-from" in command and "*_0)" not in command
