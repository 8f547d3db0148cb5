"""`compute: auto`: which cluster a job gets, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs import support
from jobs.lab import Lab
from torchyard.base.clock import FakeClock
from torchyard.base.errors import InvalidSpec
from torchyard.compute import actions as computes
from torchyard.executors.executor import EngineUnreachable
from torchyard.jobs.records.types import Job, parse_job
from torchyard.jobs.services import Services
from torchyard.workspaces import actions as workspaces


@pytest.fixture
def lab(services: Services) -> Lab:
    workspaces.update(services.db, support.WORKSPACE, {"auto_compute": True})
    document = {"name": "local", "max_instances": 2}
    computes.create(services.db, services.clock, support.WORKSPACE, document)
    return Lab(services)


def auto(lab: Lab, nodes: int = 1, **keys: Any) -> Job:
    resources = {"instance_count": nodes}
    job = support.submit(lab.services, compute="auto", resources=resources, **keys)
    lab.rounds()
    return lab.again(job)


def test_the_first_cluster_that_can_hold_the_job_now(lab: Lab) -> None:
    first, second = auto(lab, 2), auto(lab, 2)
    assert (first.compute, second.compute) == ("local", "lab")
    assert lab.notices(first)[0] == "`compute: auto` is `local`: 2 of 2 nodes of `local` are free"
    assert "2 of 4 nodes of `lab` are free" in lab.notices(second)[0]
    assert parse_job(first).spec.compute == "local"


def test_else_the_one_that_can_soonest(lab: Lab, clock: FakeClock) -> None:
    auto(lab, 2, limits={"timeout": 600})
    lab.engine.cluster = replace(lab.engine.cluster, nodes=())
    support.submit(lab.services, compute="lab", resources={"instance_count": 3})
    lab.rounds()
    job = auto(lab, 2)
    assert job.compute == "local"
    assert "can soonest, in at most 12 min" in lab.notices(job)[0]


def test_what_can_never_run_it_is_not_chosen(lab: Lab) -> None:
    assert auto(lab, 3).compute == "lab"  # `local` has two nodes
    with pytest.raises(InvalidSpec, match="`local`: it has at most 2 nodes; `lab`:") as refusal:
        auto(lab, 4)
    assert refusal.value.at == ("compute",)


def test_an_engine_that_does_not_answer_is_not_chosen(lab: Lab) -> None:
    lab.engine.unreachable = EngineUnreachable("slurmctld does not answer")
    auto(lab, 2)
    assert auto(lab, 2).compute == "local"  # it waits there


def test_the_workspace_has_to_allow_it(lab: Lab) -> None:
    workspaces.update(lab.services.db, support.WORKSPACE, {"auto_compute": False})
    with pytest.raises(InvalidSpec, match="not allowed in workspace `default`") as refusal:
        auto(lab)
    assert "auto_compute=true" in refusal.value.hint


def test_sent_again_it_is_the_same_job(lab: Lab) -> None:
    job = auto(lab, name="once")
    assert auto(lab, name="once") == job
