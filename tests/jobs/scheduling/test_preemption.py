from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs import support
from jobs.support import WORKSPACE, Worker, again, attempt_of, submit
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec
from torchyard.compute import actions as computes
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.records import attempt_store, progress
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests.to_json import job_json
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.scheduling import preemption
from torchyard.jobs.services import Services


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    made = support.make_services(tmp_path, db, clock)
    for name, tier in {"spare": "low_priority", "mine": "dedicated"}.items():
        document = {"name": name, "max_instances": 4, "tier": tier}
        computes.create(db, clock, WORKSPACE, document, home=made.home)
    object.__setattr__(made, "machine", {"nodes": 4})
    return made


def running(services: Services, scheduler: Scheduler, clock: FakeClock, **changes: Any) -> Job:
    """A job whose ranks have started."""
    job = submit(services, **changes)
    clock.advance(1)
    scheduler.run_round()
    assert again(services, job).status is Status.STARTING
    attempt = attempt_of(services, job)
    for node in range(attempt.node_count):
        Worker(services, attempt, node).tell("ranks_started", ranks=[])
    return again(services, job)


def leaves(services: Services, executor: FakeExecutor, job: Job) -> None:
    """What the workers of a preempted attempt report."""
    attempt = attempt_of(services, job)
    for node in range(attempt.node_count):
        worker = Worker(services, attempt, node, seq=1)
        worker.tell("rank_exited", rank=node, local_rank=0, exit_code=143, signal=15)
        worker.tell("node_finalizing")
        error = {"code": "preempted", "message": "another job needs its nodes"}
        worker.tell("node_exited", exit_code=143, error=error)
    executor.finish(attempt.id)


def order_of(services: Services, job: Job) -> str:
    return attempt_of(services, job).order_reason


SPARE = {"compute": "spare"}


def test_a_dedicated_job_preempts_a_low_priority_job(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    low = running(services, scheduler, clock, **SPARE, resources={"instance_count": 3})
    dedicated = submit(services, compute="mine", resources={"instance_count": 4})
    later = submit(services, **SPARE)
    scheduler.run_round()
    assert order_of(services, low) == "preempted"
    assert again(services, dedicated).status is Status.QUEUED
    assert waiting_reasons.describe(services, again(services, dedicated)) == (
        "needs 4 nodes; 4 of 4 nodes of `mine` are free, and 1 of the 4 nodes of this machine "
        f"that they take together; job `{low.name}` makes room for it"
    )
    # One node is free, but it is reserved for the dedicated job by now.
    assert again(services, later).status is Status.QUEUED
    scheduler.run_round()
    leaves(services, executor, low)
    queued = again(services, low)
    assert (queued.status, queued.error, queued.retry_at) == (Status.QUEUED, None, None)
    scheduler.run_round()
    assert again(services, dedicated).status is Status.STARTING
    assert again(services, low).status is Status.QUEUED
    with services.db.read() as connection:
        (first,) = attempt_store.attempts_of(connection, low.id)
    assert first.error is not None and first.error.code == "preempted"
    assert f"job `{dedicated.name}` needs 4 nodes of `mine`" in first.error.message
    shown = job_json(services, again(services, low))
    assert any("attempt 1 was preempted" in notice for notice in shown["notices"])
    spans = progress.timeline(actions.events(services.db, low))
    assert (spans[-1].name.value, spans[-1].waited_for) == ("Scaling", "attempt 1 was preempted")
    # It resumes once nodes are free, before jobs that were submitted later.
    for node in range(4):
        Worker(services, attempt_of(services, dedicated), node).whole_life()
    executor.finish(attempt_of(services, dedicated).id)
    scheduler.run_round()
    assert again(services, low).status is Status.STARTING
    assert executor.launches[-2].job == low.name
    assert executor.launches[-2].variables["TORCHYARD_ATTEMPT_NUMBER"] == "2"


def test_the_fewest_and_latest_started_jobs_are_preempted(
    services: Services, scheduler: Scheduler, clock: FakeClock
) -> None:
    low = [running(services, scheduler, clock, **SPARE) for _ in range(4)]
    submit(services, compute="mine")
    scheduler.run_round()
    assert [order_of(services, job) for job in low] == ["", "", "", "preempted"]
    scheduler.run_round()
    assert [order_of(services, job) for job in low] == ["", "", "", "preempted"], "once is enough"
    submit(services, resources={"instance_count": 2})
    scheduler.run_round()
    assert [order_of(services, job) for job in low] == ["", "preempted", "preempted", "preempted"]


def test_nothing_is_preempted_when_it_would_not_help(
    services: Services, scheduler: Scheduler, clock: FakeClock
) -> None:
    running(services, scheduler, clock, compute="mine", resources={"instance_count": 3})
    low = running(services, scheduler, clock, **SPARE)
    submit(services, resources={"instance_count": 2})
    scheduler.run_round()
    assert order_of(services, low) == ""


def test_a_spot_job_leaves_its_own_cluster(
    services: Services, scheduler: Scheduler, clock: FakeClock
) -> None:
    object.__setattr__(services, "machine", {})
    spot = {"queue_settings": {"job_tier": "spot"}, "resources": {"instance_count": 4}}
    first = running(services, scheduler, clock, **spot)
    other = submit(services, **spot)
    scheduler.run_round()
    assert order_of(services, first) == "", "spot jobs leave for no spot job"
    submit(services)
    scheduler.run_round()
    assert order_of(services, first) == "preempted"
    assert again(services, other).status is Status.QUEUED


def test_a_preempted_attempt_is_not_counted_by_a_retry_policy(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    policy = {"torchyard.retry.max_attempts": 2, "torchyard.retry.backoff_s": 0}
    job = running(services, scheduler, clock, properties=policy)
    for attempt in (1, 2):
        preemption.preempt(services, WORKSPACE, job.name, "me")
        leaves(services, executor, job)
        scheduler.run_round()
        scheduler.run_round()
        assert attempt_of(services, job).number == attempt + 1
        Worker(services, attempt_of(services, job)).tell("ranks_started", ranks=[])
    for status in (Status.STARTING, Status.FAILED):
        attempt_now = attempt_of(services, job)
        seq = 1 if attempt_now.number == 3 else 0
        worker = Worker(services, attempt_now, seq=seq)
        error = {"code": "rank_failed", "message": "rank 0 exited with code 9"}
        worker.tell("node_exited", exit_code=9, error=error)
        executor.finish(attempt_now.id)
        clock.advance(1)
        scheduler.run_round()
        scheduler.run_round()
        assert again(services, job).status is status
    assert again(services, job).attempt == 4


def test_a_preempted_job_that_succeeds_is_completed(
    services: Services, scheduler: Scheduler, clock: FakeClock
) -> None:
    job = running(services, scheduler, clock)
    preemption.preempt(services, WORKSPACE, job.name, "me")
    worker = Worker(services, attempt_of(services, job), seq=1)
    worker.tell("node_finalizing")
    worker.tell("node_exited", exit_code=0, error=None)
    assert again(services, job).status is Status.COMPLETED


def test_a_worker_that_dies_during_preemption_does_not_fail_the_job(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = running(services, scheduler, clock)
    preemption.preempt(services, WORKSPACE, job.name, "me")
    executor.lose(attempt_of(services, job).id)
    scheduler.run_round()
    assert again(services, job).status is Status.QUEUED


def test_a_canceled_job_does_not_come_back(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = running(services, scheduler, clock)
    preemption.preempt(services, WORKSPACE, job.name, "me")
    actions.cancel(services, WORKSPACE, job.name)
    leaves(services, executor, job)
    ended = again(services, job)
    assert (ended.status, ended.error) == (Status.CANCELED, None)


def test_only_running_jobs_can_be_preempted(services: Services, scheduler: Scheduler) -> None:
    job = submit(services)
    with pytest.raises(Conflict, match="NotStarted and holds no nodes") as refused:
        preemption.preempt(services, WORKSPACE, job.name, "me")
    assert "yard job show" in refused.value.hint


@pytest.mark.parametrize(
    "settings, at, hint",
    [
        ({"priority": "hihg"}, "priority", "did you mean `high`?"),
        ({"priority": "urgent"}, "priority", "use one of: medium, low, high"),
        ({"job_tier": "spto"}, "job_tier", "did you mean `spot`?"),
        ({"prority": "high"}, "prority", "did you mean `priority`?"),
        ({"priority": 3}, "priority", "in quotes"),
    ],
)
def test_wrong_queue_settings_are_refused(
    services: Services, settings: dict[str, Any], at: str, hint: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        submit(services, queue_settings=settings)
    assert refused.value.at == ("queue_settings", at)
    assert hint in refused.value.hint


def test_priority_and_tier_are_shown(services: Services) -> None:
    job = submit(services, queue_settings={"job_tier": "Spot", "priority": "High"})
    shown = job_json(services, job)
    assert (shown["priority"], shown["job_tier"]) == ("high", "spot")
    assert (job_json(services, submit(services))["priority"]) == "medium"
