"""Jobs whose code comes after them."""

from __future__ import annotations

from jobs import support
from jobs.support import again
from torchyard.base.clock import FakeClock
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.records.types import Job, Status, parse_job
from torchyard.jobs.requests import late_code
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services

DOCUMENT = {**support.JOB, "name": "late"}


def created(services: Services) -> Job:
    return late_code.create(services, support.WORKSPACE, DOCUMENT, support.ME)


def test_it_waits_for_its_code_without_a_node(services: Services, scheduler: Scheduler) -> None:
    job = created(services)
    scheduler.run_round()
    waiting = again(services, job)
    assert (waiting.status, waiting.attempt) == (Status.QUEUED, 0)
    assert "waits for its code" in waiting_reasons.describe(services, waiting)
    assert late_code.is_awaited(waiting)
    late_code.add(services, waiting, "abc")
    assert parse_job(again(services, job)).spec.code == "snapshot:abc"
    scheduler.run_round()
    started = again(services, job)
    assert (started.status, late_code.is_awaited(started)) == (Status.STARTING, False)


def test_it_is_the_same_job_when_it_is_sent_again(services: Services) -> None:
    job = created(services)
    late_code.add(services, job, "abc")
    assert created(services).id == job.id
    assert not late_code.is_awaited(again(services, job))


def test_one_whose_code_never_comes_starts_in_the_end(
    services: Services, scheduler: Scheduler, clock: FakeClock
) -> None:
    job = created(services)
    scheduler.run_round()
    clock.advance(3601)
    scheduler.run_round()
    assert again(services, job).status is Status.STARTING


def test_no_other_job_waits(services: Services) -> None:
    assert not late_code.is_awaited(support.submit(services))
