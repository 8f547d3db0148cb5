"""Clusters with jobs on them: devices, scaling by the queue, deletion by force."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs import support
from jobs.support import WORKSPACE, Worker, again, attempt_of, submit
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec, NotFound
from torchyard.compute import actions as computes
from torchyard.executors.device_locks import give_back
from torchyard.executors.executor import DevicesTaken
from torchyard.executors.fake import FakeExecutor
from torchyard.executors.machine import Machine
from torchyard.jobs import actions
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.attempts import worker_reports
from torchyard.jobs.records import attempt_store, progress
from torchyard.jobs.records.types import Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.scheduling import clusters
from torchyard.jobs.services import Services


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    """Services on a machine with two fake GPUs."""
    environ = {"TORCHYARD_DEVICES": "2", "TORCHYARD_DEVICE_LOCKS": str(tmp_path / "locks")}
    return replace(support.make_services(tmp_path, db, clock), devices=Machine(environ))


def cluster(services: Services, name: str = "cluster", **keys: Any) -> None:
    computes.create(services.db, services.clock, WORKSPACE, {"name": name, **keys})


def states(services: Services, name: str = "cluster") -> list[str]:
    return [node.state for node in clusters.nodes(services.db, WORKSPACE, name)]


def test_nodes_show_their_jobs_and_the_queue(services: Services, scheduler: Scheduler) -> None:
    cluster(services, max_instances=2, idle_time_before_scale_down=0)
    first = submit(services, compute="cluster", resources={"instance_count": 2})
    second = submit(services, compute="cluster")
    for _ in range(3):  # a round takes what its time allows
        scheduler.run_round()
    there = clusters.nodes(services.db, WORKSPACE, "cluster")
    assert [(node.name, node.state, node.job, node.rank, node.owner) for node in there] == [
        ("cluster-0", "running", first.name, 0, "me"),
        ("cluster-1", "running", first.name, 1, "me"),
    ]
    [waits], count = clusters.waiting_at(services, WORKSPACE, "cluster")
    assert (waits.job, waits.node_count, count) == (second.name, 1, 1)
    assert "needs 1 node" in waits.why
    for node in range(2):
        Worker(services, attempt_of(services, first), node).whole_life()
    scheduler.run_round()
    # One node is in use, and the other is not needed.
    assert again(services, second).status is Status.STARTING
    assert states(services) == ["running"]
    Worker(services, attempt_of(services, second)).whole_life()
    scheduler.run_round()
    assert states(services) == []


def test_a_launch_that_loses_the_race_goes_back_into_the_queue(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services)
    executor.launch_error = DevicesTaken("needs 1 GPUs of this machine, and others took them first")
    scheduler.run_round()
    back = again(services, job)
    assert (back.status, back.attempt, back.error) == (Status.QUEUED, 0, None)
    with services.db.read() as connection:
        assert attempt_store.attempts_of(connection, job.id) == []
    assert states(services, "local") == ["idle"]
    spans = progress.timeline(actions.events(services.db, back))
    assert spans[-1].name.value == "Scaling" and "others took them first" in spans[-1].waited_for
    scheduler.run_round()
    assert again(services, job).status is Status.STARTING
    assert attempt_of(services, job).number == 1
    Worker(services, attempt_of(services, job)).whole_life()
    assert again(services, job).status is Status.COMPLETED


def test_a_partly_started_launch_is_retried(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services)
    executor.launch_error = DevicesTaken("taken", begun=True)
    scheduler.preparer.prepare()
    scheduler.claimer.claim()
    assert again(services, job).status is Status.STARTING and executor.launches == []
    scheduler.run_round()
    assert len(executor.launches) == 1


def test_put_back_leaves_a_started_attempt_alone(services: Services, scheduler: Scheduler) -> None:
    job = submit(services)
    scheduler.run_round()
    worker_reports.put_back(services, attempt_of(services, job), "late")
    assert again(services, job).status is Status.STARTING


@pytest.mark.parametrize(
    ("compute", "document", "expected"),
    [
        ({}, {}, 1),
        ({}, {"resources": {"instance_count": 2}}, 1),
        ({}, {"distribution": {"type": "pytorch", "process_count_per_instance": 2}}, 2),
        ({}, {"distribution": {"type": "pytorch", "process_count_per_instance": 5}}, 2),
        ({}, {"resources": {"instance_count": 3}}, 0),
        ({}, {"properties": {"torchyard.gpus": "0"}}, 0),
        ({}, {"properties": {"torchyard.gpus": "2"}}, 2),
        ({"size": "Standard_NC6"}, {}, 1),
        ({"size": "Standard_NC12"}, {}, 2),
        ({"size": "Standard_D2_v2"}, {}, 0),
        ({"size": "Standard_NC6"}, {"properties": {"torchyard.rehearse_on_cpu": "true"}}, 0),
        ({"size": "Standard_NC24"}, {"properties": {"torchyard.rehearse_on_cpu": "true"}}, 0),
    ],
)
def test_a_node_gets_gpus_by_size_property_or_processes(
    services: Services,
    scheduler: Scheduler,
    executor: FakeExecutor,
    compute: dict[str, Any],
    document: dict[str, Any],
    expected: int,
) -> None:
    cluster(services, **compute)
    submit(services, compute="cluster", **document)
    scheduler.run_round()
    [plan] = executor.launches
    assert plan.gpus_per_node == expected
    assert (plan.cluster, plan.size) == ("cluster", compute.get("size", ""))


@pytest.mark.parametrize(
    ("compute", "document", "code"),
    [
        ({"size": "Standard_NC6"}, {"resources": {"instance_count": 3}}, "too_many_gpus"),
        ({"size": "Standard_NC24"}, {}, "too_many_gpus"),
        ({}, {"properties": {"torchyard.gpus": "3"}}, "too_many_gpus"),
        ({}, {"properties": {"torchyard.gpus": "-1"}}, "invalid_spec"),
        ({"size": "Standard_D2_v2"}, {"properties": {"torchyard.gpus": "1"}}, "invalid_spec"),
        ({"max_instances": 2}, {"resources": {"instance_count": 3}}, "too_many_nodes"),
    ],
)
def test_more_gpus_than_the_machine_has_are_refused_at_once(
    services: Services, compute: dict[str, Any], document: dict[str, Any], code: str
) -> None:
    cluster(services, **compute)
    with pytest.raises(InvalidSpec) as refused:
        submit(services, compute="cluster", **document)
    assert refused.value.code == code and refused.value.at and refused.value.hint


def test_too_many_nodes_are_refused_with_what_raises_the_limit(services: Services) -> None:
    # `compute create` would put another cluster in place of one of Ray or Slurm.
    cluster(services, max_instances=2)
    with pytest.raises(InvalidSpec) as refused:
        submit(services, compute="cluster", resources={"instance_count": 3})
    assert "`yard compute update -n cluster --max-instances 3`" in refused.value.hint


def test_a_gpu_size_needs_a_machine_with_gpus(services: Services) -> None:
    bare = replace(services, devices=Machine({}))
    cluster(bare, size="Standard_NC6s_v3")
    with pytest.raises(InvalidSpec, match="this machine has none") as refused:
        submit(bare, compute="cluster")
    assert refused.value.code == "no_gpu" and "--rehearse-on-cpu" in refused.value.hint
    submit(bare, compute="cluster", properties={"torchyard.rehearse_on_cpu": "true"})
    submit(bare)  # `local` takes it as it is


def test_a_job_waits_for_devices_that_others_hold(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    others = services.devices.take(2, "job x of workspace y")
    job = submit(services)
    free = submit(services, compute="local", properties={"torchyard.gpus": "0"})
    scheduler.run_round()
    assert again(services, job).status is Status.QUEUED
    assert waiting_reasons.describe(services, again(services, job)).startswith(
        "needs 1 GPU; 2 of 2 of this machine are in use by job x of workspace y"
    )
    give_back(others)
    scheduler.run_round()
    assert again(services, job).status is Status.STARTING
    scheduler.run_round()
    assert again(services, free).status is Status.STARTING


def test_a_cluster_with_jobs_is_deleted_by_force_only(
    services: Services, scheduler: Scheduler, clock: FakeClock
) -> None:
    cluster(services, max_instances=1)
    running = submit(services, compute="cluster")
    scheduler.run_round()
    queued = submit(services, compute="cluster")
    with pytest.raises(Conflict, match="2 jobs that have not ended") as refused:
        clusters.delete(services, WORKSPACE, "cluster", "me")
    assert refused.value.code == "compute_busy" and "--force" in refused.value.hint
    assert not clusters.delete(services, WORKSPACE, "cluster", "me", force=True)
    with pytest.raises(Conflict, match="is being deleted"):
        submit(services, compute="cluster")
    canceled = again(services, queued)
    assert canceled.status is Status.CANCELED and canceled.error is not None
    assert canceled.error.message == "compute `cluster` was deleted by `me`"
    worker = Worker(services, attempt_of(services, running))
    assert worker_reports.stop_request(services, worker.attempt.id) == worker_reports.StopRequest(
        "stop", "cancel"
    )
    worker.tell("node_exited", exit_code=143, error={"code": "stopped", "message": ""})
    canceled = again(services, running)
    assert canceled.status is Status.CANCELED
    assert canceled.error is not None and canceled.error.code == "compute_deleted"
    scheduler.run_round()
    with pytest.raises(NotFound):
        computes.get(services.db, WORKSPACE, "cluster")


def test_an_idle_cluster_is_deleted_at_once(services: Services) -> None:
    cluster(services, min_instances=2)
    assert clusters.delete(services, WORKSPACE, "cluster", "me")
    with pytest.raises(NotFound):
        computes.get(services.db, WORKSPACE, "cluster")
    with pytest.raises(Conflict, match="built in"):
        clusters.delete(services, WORKSPACE, "local", "me", force=True)
