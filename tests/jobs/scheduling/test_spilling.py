"""A full cluster's jobs, on the one that it spills over to."""

from __future__ import annotations

import pytest

from jobs import support
from jobs.lab import Lab
from torchyard.base.errors import InvalidSpec
from torchyard.compute import actions as computes
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.services import Services


@pytest.fixture
def lab(services: Services) -> Lab:
    made = Lab(services)
    cluster(made, spill_over="lab")
    return made


def cluster(lab: Lab, **settings: str) -> None:
    document = {"name": "small", "max_instances": 2, "torchyard": settings}
    computes.create(lab.services.db, lab.services.clock, support.WORKSPACE, document)


def small(lab: Lab, nodes: int) -> Job:
    resources = {"instance_count": nodes}
    return support.submit(lab.services, compute="small", resources=resources)


def test_a_job_that_finds_no_node_moves_to_the_other_cluster(lab: Lab) -> None:
    first, second, third = small(lab, 2), small(lab, 2), small(lab, 2)
    lab.rounds(3)
    first, second, third = lab.again(first), lab.again(second), lab.again(third)
    assert [job.compute for job in (first, second, third)] == ["small", "lab", "lab"]
    assert second.status is third.status is Status.PROVISIONING
    (notice,) = lab.notices(second)
    assert notice == "`small` is full; the job runs on `lab`, to which it spills over"


def test_only_as_many_move_as_find_nodes_there(lab: Lab) -> None:
    jobs = [small(lab, 2) for _ in range(4)]
    lab.rounds(3)
    states = [(lab.again(job).compute, lab.again(job).status) for job in jobs]
    assert states[3] == ("small", Status.QUEUED)


def test_a_job_for_which_nodes_are_free_stays(lab: Lab) -> None:
    job = small(lab, 1)
    lab.rounds(2)
    assert lab.again(job).compute == "small"


def test_it_names_a_cluster_that_exists(lab: Lab) -> None:
    with pytest.raises(InvalidSpec, match="names compute `lap`") as refusal:
        cluster(lab, spill_over="lap")
    assert refusal.value.hint == "did you mean `lab`?"
    with pytest.raises(InvalidSpec, match="names the cluster itself"):
        cluster(lab, spill_over="small")
