"""Time in which the server was down does not count as the job's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jobs.support import again, attempt_of, submit
from torchyard.base.clock import FakeClock, to_text
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts import node_reports, report_fields
from torchyard.jobs.http.scheduler import Scheduler
from torchyard.jobs.records import progress, store
from torchyard.jobs.records.types import Attempt, Job, Stage, Status
from torchyard.jobs.services import Services


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
) -> None:
    """What happened so many seconds before now, by the node's clock."""
    now = services.clock.now()
    events = [
        {"seq": first + number, "at": to_text(now - timedelta(seconds=ago_s)), "kind": kind,
         "body": body}
        for number, (kind, body, ago_s) in enumerate(kinds)
    ]  # fmt: skip
    read = report_fields.read_events(node, events)
    node_reports.receive(services, attempt.id, node, read)


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
    # Its clock is behind by a minute.
    report(services, attempt, 0, 1, ended(60))
    assert again(services, job).duration_s == 10.0
