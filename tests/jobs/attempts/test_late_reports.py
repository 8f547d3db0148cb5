"""Time in which the server was down does not count as the job's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobs.support import again, attempt_of, submit
from torchyard.base.clock import FakeClock, to_text
from torchyard.base.errors import InvalidInput
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts import node_reports, report_fields, worker_reports
from torchyard.jobs.records import progress, store
from torchyard.jobs.records.types import Attempt, Job, Stage, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services

# Since when the nodes' machines are up.
BOOTED_S = 1e6


def started(services: Services, nodes: int = 1) -> tuple[Job, Attempt]:
    scheduler = Scheduler(services, FakeExecutor(), "http://127.0.0.1:1")
    job = submit(services, resources={"instance_count": nodes})
    scheduler.run_round()
    scheduler.preparer.close()
    attempt = attempt_of(services, job)
    for node in range(nodes):
        report(services, attempt, node, 0, [("ranks_started", {}, 0.0)])
    return job, attempt


def report(
    services: Services,
    attempt: Attempt,
    node: int,
    first: int,
    kinds: list[tuple[str, dict[str, Any], float]],
    ran_s: float | None = None,
    clock_behind_s: float = 0.0,
) -> None:
    """What happened so many seconds before now."""
    now = services.clock.now() - timedelta(seconds=clock_behind_s)
    events = [
        {"seq": first + number, "at": to_text(now - timedelta(seconds=ago_s)), "kind": kind,
         "steady_s": BOOTED_S - ago_s, "body": body}
        for number, (kind, body, ago_s) in enumerate(kinds)
    ]  # fmt: skip
    read = report_fields.read_events(node, events, BOOTED_S)
    node_reports.receive(services, attempt.id, node, read, ran_s)


def ended(ago_s: float, code: int = 0) -> list[tuple[str, dict[str, Any], float]]:
    error = {"code": "rank_failed", "message": "rank 0 exited with code 3"} if code else None
    return [
        ("node_finalizing", {}, ago_s + 1),
        ("node_exited", {"exit_code": code, "error": error}, ago_s),
    ]


@pytest.mark.parametrize("code", [0, 3])
def test_a_job_that_ended_while_the_server_was_down(
    services: Services, clock: FakeClock, code: int
) -> None:
    job, attempt = started(services)
    clock.advance(25)
    report(services, attempt, 0, 1, ended(19, code))
    job = again(services, job)
    assert job.status is (Status.FAILED if code else Status.COMPLETED)
    assert job.ended_at == clock.now() - timedelta(seconds=19)
    assert job.duration_s == 6.0
    with services.db.read() as connection:
        spans = progress.timeline(store.stages_of(connection, job.id))
    took = {span.name: span.took_s for span in spans}
    assert (took[Stage.RUNNING], took[Stage.POST_PROCESSING]) == (5.0, 1.0)


def test_the_last_of_several_nodes_counts(services: Services, clock: FakeClock) -> None:
    job, attempt = started(services, nodes=2)
    clock.advance(60)
    report(services, attempt, 1, 1, ended(20))
    report(services, attempt, 0, 1, ended(40))
    assert again(services, job).duration_s == 40.0


@pytest.mark.parametrize(("ago_s", "duration_s"), [(-500.0, 100.0), (5000.0, 0.0)])
def test_a_clock_that_is_wrong_stays_within_what_the_server_knows(
    services: Services, clock: FakeClock, ago_s: float, duration_s: float
) -> None:
    job, attempt = started(services)
    clock.advance(100)
    report(services, attempt, 0, 1, ended(ago_s))
    assert again(services, job).duration_s == duration_s


def test_a_node_that_is_heard_of_is_not_late(services: Services, clock: FakeClock) -> None:
    job, attempt = started(services)
    clock.advance(5)
    report(services, attempt, 0, 1, [])
    clock.advance(5)
    report(services, attempt, 0, 1, ended(0), clock_behind_s=60)
    job = again(services, job)
    assert job.ended_at == clock.now() and job.duration_s == 10.0


def test_a_short_absence_counts_no_more_than_a_long_one(
    services: Services, clock: FakeClock
) -> None:
    job, attempt = started(services)
    clock.advance(9)
    report(services, attempt, 0, 1, ended(8))
    assert again(services, job).duration_s == 1.0


def test_a_duration_is_what_the_nodes_measured(services: Services, clock: FakeClock) -> None:
    job, attempt = started(services, nodes=2)
    clock.advance(600)
    report(services, attempt, 0, 1, ended(0), ran_s=4.5)
    report(services, attempt, 1, 1, ended(0), ran_s=4.75)
    assert again(services, job).duration_s == 4.75


def test_a_node_that_is_lost_ran_until_it_was_heard_of_last(
    services: Services, clock: FakeClock
) -> None:
    job, attempt = started(services)
    clock.advance(5)
    report(services, attempt, 0, 1, [], ran_s=5.0)
    clock.advance(3600)
    worker_reports.lose(services, attempt.id, 0)
    assert again(services, job).duration_s == 5.0


def test_the_time_between_attempts_is_not_the_commands(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = submit(services, properties={"torchyard.retry.max_attempts": "2"})
    for number, ran_s in ((1, 2.0), (2, 3.0)):
        scheduler.run_round()
        scheduler.run_round()
        attempt = attempt_of(services, job)
        assert attempt.number == number
        life = [("ranks_started", {}, 0.0), *ended(0, 3 if number == 1 else 0)]
        report(services, attempt, 0, 0, life, ran_s)
        executor.finish(attempt.id)
        clock.advance(3600)
    assert again(services, job).duration_s == 5.0


@pytest.mark.parametrize("ran_s", [-1.0, float("nan"), float("inf")])
def test_a_length_that_is_none_is_refused(ran_s: float) -> None:
    with pytest.raises(InvalidInput, match="`ran_s` must be a number of seconds"):
        report_fields.check_seconds("ran_s", ran_s)
