"""Silent workers, idle time, and root causes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jobs import support
from torchyard.base.clock import FakeClock, to_text
from torchyard.base.errors import InvalidSpec
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts import root_cause
from torchyard.jobs.attempts.heartbeats import Heartbeats
from torchyard.jobs.attempts.idle_time import IdleTime
from torchyard.jobs.records.types import AttemptNode, Job, JobError, NodeState, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.jobs.spec import watch_properties


def running(
    services: Services, executor: FakeExecutor, **changes: Any
) -> tuple[Job, list[support.Worker]]:
    job = support.submit(services, **changes)
    Scheduler(services, executor, "http://server").run_round()
    attempt = support.attempt_of(services, job)
    workers = [support.Worker(services, attempt, node) for node in range(attempt.node_count)]
    for worker in workers:
        worker.tell("node_started", hostname="h", pid=1, addresses=[])
        worker.tell("ranks_started", ranks=[])
    return support.again(services, job), workers


def passes(clock: FakeClock, heartbeats: Heartbeats, seconds: int) -> None:
    """Advance the clock, with the rounds of a running server."""
    for _ in range(0, seconds, 5):
        clock.advance(5)
        heartbeats.check()


def test_a_job_goes_on_when_its_worker_reports_again(services: Services, clock: FakeClock) -> None:
    executor = FakeExecutor()
    heartbeats = Heartbeats(services, executor)
    job, (first, second) = running(services, executor, resources={"instance_count": 2})
    assert job.status is Status.RUNNING
    passes(clock, heartbeats, 25)
    first.tell("notice", message="here")
    passes(clock, heartbeats, 10)
    silent = support.again(services, job)
    assert silent.status is Status.NOT_RESPONDING
    second.tell("notice", message="here")
    heartbeats.check()
    assert support.again(services, job).status is Status.RUNNING
    for worker in (first, second):
        worker.tell("node_finalizing")
        worker.tell("node_exited", exit_code=0, error=None)
    assert support.again(services, job).status is Status.COMPLETED


def test_a_worker_that_stays_silent_fails_the_job_and_is_stopped(
    services: Services, clock: FakeClock
) -> None:
    executor = FakeExecutor()
    heartbeats = Heartbeats(services, executor)
    job, _ = running(services, executor)
    passes(clock, heartbeats, 600)
    failed = support.again(services, job)
    assert failed.status is Status.FAILED and failed.error is not None
    assert failed.error.code == "not_responding"
    assert failed.error.message == "the worker of node 0 has not reported for 600 s"


def test_a_restarted_server_blames_no_worker(services: Services, clock: FakeClock) -> None:
    executor = FakeExecutor()
    job, _ = running(services, executor)
    clock.advance(5000)
    heartbeats = Heartbeats(services, executor)  # as after a restart
    clock.advance(20)
    heartbeats.check()
    assert support.again(services, job).status is Status.RUNNING


def test_a_suspended_server_blames_no_worker(services: Services, clock: FakeClock) -> None:
    executor = FakeExecutor()
    job, _ = running(services, executor)
    heartbeats = Heartbeats(services, executor)
    passes(clock, heartbeats, 10)
    clock.advance(5000)  # a laptop that slept
    heartbeats.check()
    passes(clock, heartbeats, 20)
    assert support.again(services, job).status is Status.RUNNING
    passes(clock, heartbeats, 15)
    assert support.again(services, job).status is Status.NOT_RESPONDING


@pytest.mark.parametrize("seconds", [48 * 3600, -48 * 3600])
def test_a_clock_that_is_set_blames_no_worker_and_spares_none(
    services: Services, clock: FakeClock, seconds: int
) -> None:
    executor = FakeExecutor()
    job, _ = running(services, executor)
    heartbeats = Heartbeats(services, executor)
    passes(clock, heartbeats, 10)
    clock.set_by(seconds)
    heartbeats.check()
    passes(clock, heartbeats, 20)
    assert support.again(services, job).status is Status.RUNNING
    passes(clock, heartbeats, 15)
    assert support.again(services, job).status is Status.NOT_RESPONDING


def test_a_report_that_arrives_while_a_round_begins_blames_no_worker(
    services: Services, clock: FakeClock
) -> None:
    executor = FakeExecutor()
    heartbeats = Heartbeats(services, executor)
    passes(clock, heartbeats, 2000)  # a server that has run for longer than a worker may be silent
    job, (worker,) = running(services, executor)
    clock.advance(4.8)
    worker.tell("notice", message="here")  # the round has read its clock 0.2 s before
    clock.advance(-0.2)
    heartbeats.check()
    assert support.again(services, job).status is Status.RUNNING


# Idle time


def test_output_and_metrics_of_any_node_reset_the_idle_time(services: Services) -> None:
    moment = [0.0]
    executor = FakeExecutor()
    job, _ = running(services, executor, resources={"instance_count": 2})
    attempt = support.attempt_of(services, job)
    quiet = IdleTime(services, lambda: moment[0])

    def after(seconds: float) -> float:
        moment[0] += seconds
        return quiet.seconds(attempt)

    assert after(0) == 0
    assert after(7) == 7
    services.logs.append(job.workspace, job.name, 1, "user_logs/std_log_process_1.txt", 0, b"x")
    assert after(1) == 0
    assert after(5) == 5
    record = {"run": job.name, "kind": "metric", "key": "loss", "value": 1, "timestamp": 1}
    services.history.receive(lambda _: job.id, attempt.id, 1, 0, [record])
    assert after(1) == 0
    services.logs.append(job.workspace, job.name, 1, "user_logs/stacks_rank_0.txt", 0, b"stack")
    assert after(9) == 9, "stacks that the watch writes are not output of the job"
    key = "system/node-1/cpu_utilization_percentage"
    sampled = {**record, "key": key, "timestamp": 2, "sampled": True}
    services.history.receive(lambda _: job.id, attempt.id, 1, 1, [sampled])
    assert after(2) == 11, "what the worker samples is not a sign of life of the ranks"
    services.history.receive(lambda _: job.id, attempt.id, 1, 2, [{**record, "timestamp": 3}])
    assert after(1) == 0


# Root causes


def node(number: int, at_s: float, code: str = "exception", **details: Any) -> AttemptNode:
    now = FakeClock().now()
    failed_at = now + timedelta(seconds=at_s)
    error = JobError(code, f"node {number}", "", {"at": to_text(failed_at), **details})
    return AttemptNode(
        "a", number, 0, now, NodeState.EXITED, exit_code=1, error=error, failed_at=failed_at
    )


def test_the_earliest_cause_of_all_nodes_is_the_root_cause() -> None:
    lost, cause, later = node(0, 1.0, consequence=True), node(1, 1.5), node(2, 1.7)
    assert root_cause.failed_node([lost, cause, later]) is cause
    assert root_cause.failed_node([later, cause]) is cause
    assert root_cause.failed_node([lost, node(3, 0.5, consequence=True)]) is not lost
    well = replace(lost, exit_code=0, error=None, failed_at=None)
    assert root_cause.failed_node([well]) is None


def test_a_hang_reports_where_each_rank_of_every_node_stood() -> None:
    nodes = [
        node(0, 1.0, "hang", stood=[{"rank": 0, "where": "train.py line 4"}]),
        node(1, 1.2, "hang", stood=[{"rank": 1, "where": "data.py line 7"}]),
    ]
    failed = root_cause.failed_node(nodes)
    assert failed is not None and failed.error is not None
    assert failed.error.message == "node 0; rank 0: train.py line 4; rank 1: data.py line 7"


# Properties


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"torchyard.hang_after_s": "soon"}, "`torchyard.hang_after_s` is `soon`"),
        ({"torchyard.hang_after_s": "-1"}, "is `-1`"),
        ({"torchyard.hang_action": "fail"}, "none is watched for"),
        ({"torchyard.hang_after_s": "9", "torchyard.hang_action": "fial"}, "is `fial`"),
        ({"torchyard.rendezvous_timeout": "9"}, "`torchyard.rendezvous_timeout` is not a property"),
    ],
)
def test_wrong_watch_properties_are_refused(
    services: Services, properties: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidSpec, match=says) as caught:
        support.submit(services, properties=properties)
    assert caught.value.at[0] == "properties"


def test_watch_properties_are_read() -> None:
    assert watch_properties.read({}) == watch_properties.Watched()
    properties = {"torchyard.hang_after_s": "60", "torchyard.hang_action": "fail"}
    assert watch_properties.read(properties) == watch_properties.Watched(0.0, 60.0, "fail")
