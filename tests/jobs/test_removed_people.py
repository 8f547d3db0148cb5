"""A person who is removed, or loses the role, in the middle of what runs for them."""

from __future__ import annotations

import pytest

from jobs import support
from jobs.support import WORKSPACE, Worker, attempt_of
from torchyard.base.errors import Forbidden
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions as jobs
from torchyard.jobs import owners
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import local_runs, submission
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.workspaces import people, rights
from torchyard.workspaces.types import Identity, Role, TokenKind

DAN = Identity("dan", TokenKind.PERSON)


@pytest.fixture(autouse=True)
def _dan(services: Services) -> None:
    role = Role.DATA_SCIENTIST
    people.create(services.db, services.clock, "dan", role, WORKSPACE, "me")


def submit(services: Services, name: str) -> Job:
    return submission.create(services, WORKSPACE, {**support.JOB, "name": name}, DAN)[0]


def take_role(services: Services, role: Role | None = None) -> None:
    """As another server of the home would: nothing here is told."""
    people.set_role(services.db, services.clock, "dan", WORKSPACE, role, "me")


def running(services: Services, scheduler: Scheduler, name: str = "one") -> tuple[Job, Worker]:
    job = submit(services, name)
    scheduler.run_round()
    worker = Worker(services, attempt_of(services, job))
    worker.tell("node_started", hostname="h", pid=1, addresses=[])
    worker.tell("ranks_started", ranks=[])
    assert support.again(services, job).status is Status.RUNNING
    return job, worker


@pytest.mark.parametrize("role", [None, Role.READER])
def test_a_running_job_is_killed_and_another_persons_goes_on(
    services: Services, scheduler: Scheduler, role: Role | None
) -> None:
    other = support.submit(services, name="other")
    job, _ = running(services, scheduler)
    take_role(services, role)
    scheduler.run_round()
    assert support.again(services, job).status is Status.CANCEL_REQUESTED
    assert attempt_of(services, job).order == "kill"
    assert support.again(services, other).status is not Status.CANCEL_REQUESTED


def test_a_role_that_still_suffices_stops_nothing(services: Services, scheduler: Scheduler) -> None:
    job, _ = running(services, scheduler)
    take_role(services, Role.CONTRIBUTOR)
    assert owners.stop_unable(services) == []
    assert support.again(services, job).status is Status.RUNNING


def test_a_job_that_waits_is_canceled_and_says_why(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services, "waits")
    people.remove(services.db, services.clock, "dan")
    for _ in range(3):
        scheduler.run_round()
    job = support.again(services, job)
    assert job.status is Status.CANCELED
    assert job.error is not None and job.error.code == rights.CODE
    assert executor.launches == []


def test_an_attempt_that_was_claimed_before_is_not_launched(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    """As a server that was killed between claim and launch leaves it."""
    job = submit(services, "claimed")
    scheduler.preparer.prepare()
    attempt = scheduler.claimer.claim_one(job.id).attempt
    assert attempt is not None
    people.remove(services.db, services.clock, "dan")
    scheduler.claimer._launcher.launch(attempt)
    assert executor.launches == []
    job = support.again(services, job)
    assert job.status is Status.FAILED
    assert job.error is not None and job.error.code == rights.CODE


def test_what_acts_for_a_person_submits_nothing_any_more(services: Services) -> None:
    """As trials of sweeps, instances of endpoints and validations of releases are submitted."""
    people.remove(services.db, services.clock, "dan")
    with pytest.raises(Forbidden) as raised:
        submit(services, "late")
    assert raised.value.code == rights.CODE


def test_a_run_on_a_persons_own_machine_gets_no_token(services: Services) -> None:
    with services.db.write() as connection:
        experiment = jobs.ensure_experiment(connection, services.clock, WORKSPACE, "birds")
    run = local_runs.create(
        services,
        WORKSPACE,
        "local",
        experiment_id=experiment.id,
        owner="dan",
        parent="",
        variables={},
        definition={"script": "train.py"},
    )
    people.remove(services.db, services.clock, "dan")
    with pytest.raises(Forbidden) as raised:
        local_runs.begin(services, run)
    assert raised.value.code == rights.CODE


def test_who_gets_the_role_again_may_run_again(services: Services) -> None:
    take_role(services)
    take_role(services, Role.DATA_SCIENTIST)
    assert submit(services, "again").owner == "dan"
