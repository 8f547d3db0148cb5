from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs import rooms
from jobs.rooms import WORKSPACE, Worker, again, attempt_of, submit
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec
from torchyard.compute import actions as computes
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.http.scheduler import Scheduler
from torchyard.jobs.records import attempt_store, progress
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests.to_json import job_json
from torchyard.jobs.scheduling import preemption
from torchyard.jobs.services import Room


@pytest.fixture
def room(tmp_path: Path, db: Database, clock: FakeClock) -> Room:
    made = rooms.make(tmp_path, db, clock)
    for name, tier in {"spare": "low_priority", "mine": "dedicated"}.items():
        document = {"name": name, "max_instances": 4, "tier": tier}
        computes.create(db, clock, WORKSPACE, document, home=made.home)
    object.__setattr__(made, "machine", {"nodes": 4})
    return made


def running(room: Room, scheduler: Scheduler, clock: FakeClock, **changes: Any) -> Job:
    """A job whose ranks have started."""
    job = submit(room, **changes)
    clock.advance(1)
    scheduler.look()
    assert again(room, job).status is Status.STARTING
    attempt = attempt_of(room, job)
    for node in range(attempt.node_count):
        Worker(room, attempt, node).tell("ranks_started", ranks=[])
    return again(room, job)


def leaves(room: Room, executor: FakeExecutor, job: Job) -> None:
    """What the workers of a preempted attempt report."""
    attempt = attempt_of(room, job)
    for node in range(attempt.node_count):
        worker = Worker(room, attempt, node, seq=1)
        worker.tell("rank_exited", rank=node, local_rank=0, exit_code=143, signal=15)
        worker.tell("node_finalizing")
        error = {"code": "preempted", "message": "another job needs its nodes"}
        worker.tell("node_exited", exit_code=143, error=error)
    executor.finish(attempt.id)


def order_of(room: Room, job: Job) -> str:
    return attempt_of(room, job).order_reason


SPARE = {"compute": "spare"}


def test_a_dedicated_job_takes_the_room_of_a_low_priority_one(
    room: Room, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    low = running(room, scheduler, clock, **SPARE, resources={"instance_count": 3})
    dedicated = submit(room, compute="mine", resources={"instance_count": 4})
    later = submit(room, **SPARE)
    scheduler.look()
    assert order_of(room, low) == "preempted"
    assert again(room, dedicated).status is Status.QUEUED
    assert waiting_reasons.why(room, again(room, dedicated)) == (
        "needs 4 nodes; 4 of 4 nodes of `mine` are free, and 1 of the 4 nodes of this machine "
        f"that they take together; job `{low.name}` makes room for it"
    )
    # One node is free, but it is the dedicated job's by now.
    assert again(room, later).status is Status.QUEUED
    scheduler.look()
    leaves(room, executor, low)
    queued = again(room, low)
    assert (queued.status, queued.error, queued.retry_at) == (Status.QUEUED, None, None)
    scheduler.look()
    assert again(room, dedicated).status is Status.STARTING
    assert again(room, low).status is Status.QUEUED
    with room.db.read() as connection:
        (first,) = attempt_store.attempts_of(connection, low.id)
    assert first.error is not None and first.error.code == "preempted"
    assert f"job `{dedicated.name}` needs 4 nodes of `mine`" in first.error.message
    shown = job_json(room, again(room, low))
    assert any("attempt 1 is preempted" in notice for notice in shown["notices"])
    spans = progress.timeline(actions.events(room, low))
    assert (spans[-1].name.value, spans[-1].waited_for) == ("Scaling", "attempt 1 was preempted")
    # It comes back once there is room, before those that came later.
    for node in range(4):
        Worker(room, attempt_of(room, dedicated), node).whole_life()
    executor.finish(attempt_of(room, dedicated).id)
    scheduler.look()
    assert again(room, low).status is Status.STARTING
    assert executor.launches[-2].job == low.name
    assert executor.launches[-2].variables["TORCHYARD_ATTEMPT_NUMBER"] == "2"


def test_the_fewest_and_the_latest_started_leave(
    room: Room, scheduler: Scheduler, clock: FakeClock
) -> None:
    low = [running(room, scheduler, clock, **SPARE) for _ in range(4)]
    submit(room, compute="mine")
    scheduler.look()
    assert [order_of(room, job) for job in low] == ["", "", "", "preempted"]
    scheduler.look()
    assert [order_of(room, job) for job in low] == ["", "", "", "preempted"], "once is enough"
    submit(room, resources={"instance_count": 2})
    scheduler.look()
    assert [order_of(room, job) for job in low] == ["", "preempted", "preempted", "preempted"]


def test_nobody_leaves_where_it_would_not_help(
    room: Room, scheduler: Scheduler, clock: FakeClock
) -> None:
    running(room, scheduler, clock, compute="mine", resources={"instance_count": 3})
    low = running(room, scheduler, clock, **SPARE)
    submit(room, resources={"instance_count": 2})
    scheduler.look()
    assert order_of(room, low) == ""


def test_a_spot_job_leaves_its_own_cluster(
    room: Room, scheduler: Scheduler, clock: FakeClock
) -> None:
    object.__setattr__(room, "machine", {})
    spot = {"queue_settings": {"job_tier": "spot"}, "resources": {"instance_count": 4}}
    first = running(room, scheduler, clock, **spot)
    other = submit(room, **spot)
    scheduler.look()
    assert order_of(room, first) == "", "spot jobs leave for no spot job"
    submit(room)
    scheduler.look()
    assert order_of(room, first) == "preempted"
    assert again(room, other).status is Status.QUEUED


def test_a_preempted_attempt_is_not_counted_by_a_retry_policy(
    room: Room, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    policy = {"torchyard.retry.max_attempts": 2, "torchyard.retry.backoff_s": 0}
    job = running(room, scheduler, clock, properties=policy)
    for attempt in (1, 2):
        preemption.preempt(room, WORKSPACE, job.name, "me")
        leaves(room, executor, job)
        scheduler.look()
        scheduler.look()
        assert attempt_of(room, job).number == attempt + 1
        Worker(room, attempt_of(room, job)).tell("ranks_started", ranks=[])
    for status in (Status.STARTING, Status.FAILED):
        attempt_now = attempt_of(room, job)
        seq = 1 if attempt_now.number == 3 else 0
        worker = Worker(room, attempt_now, seq=seq)
        error = {"code": "rank_failed", "message": "rank 0 exited with code 9"}
        worker.tell("node_exited", exit_code=9, error=error)
        executor.finish(attempt_now.id)
        clock.advance(1)
        scheduler.look()
        scheduler.look()
        assert again(room, job).status is status
    assert again(room, job).attempt == 4


def test_a_job_that_ends_well_all_the_same_has_ended(
    room: Room, scheduler: Scheduler, clock: FakeClock
) -> None:
    job = running(room, scheduler, clock)
    preemption.preempt(room, WORKSPACE, job.name, "me")
    worker = Worker(room, attempt_of(room, job), seq=1)
    worker.tell("node_finalizing")
    worker.tell("node_exited", exit_code=0, error=None)
    assert again(room, job).status is Status.COMPLETED


def test_a_worker_that_dies_while_it_leaves_is_forgiven(
    room: Room, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = running(room, scheduler, clock)
    preemption.preempt(room, WORKSPACE, job.name, "me")
    executor.lose(attempt_of(room, job).id)
    scheduler.look()
    assert again(room, job).status is Status.QUEUED


def test_a_canceled_job_does_not_come_back(
    room: Room, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = running(room, scheduler, clock)
    preemption.preempt(room, WORKSPACE, job.name, "me")
    actions.cancel(room, WORKSPACE, job.name)
    leaves(room, executor, job)
    ended = again(room, job)
    assert (ended.status, ended.error) == (Status.CANCELED, None)


def test_only_what_runs_can_be_preempted(room: Room, scheduler: Scheduler) -> None:
    job = submit(room)
    with pytest.raises(Conflict, match="NotStarted and holds no nodes") as refused:
        preemption.preempt(room, WORKSPACE, job.name, "me")
    assert "yard job show" in refused.value.hint


@pytest.mark.parametrize(
    "given, at, hint",
    [
        ({"priority": "hihg"}, "priority", "did you mean `high`?"),
        ({"priority": "urgent"}, "priority", "use one of: medium, low, high"),
        ({"job_tier": "spto"}, "job_tier", "did you mean `spot`?"),
        ({"prority": "high"}, "prority", "did you mean `priority`?"),
        ({"priority": 3}, "priority", "in quotes"),
    ],
)
def test_wrong_queue_settings_are_refused(
    room: Room, given: dict[str, Any], at: str, hint: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        submit(room, queue_settings=given)
    assert refused.value.at == ("queue_settings", at)
    assert hint in refused.value.hint


def test_priority_and_tier_are_shown(room: Room) -> None:
    job = submit(room, queue_settings={"job_tier": "Spot", "priority": "High"})
    shown = job_json(room, job)
    assert (shown["priority"], shown["job_tier"]) == ("high", "spot")
    assert (job_json(room, submit(room))["priority"]) == "medium"
