"""Runs on a user's own machine: what their program reports, and what follows from silence."""

from __future__ import annotations

import pytest

from jobs import support
from torchyard.base.clock import FakeClock
from torchyard.base.errors import Conflict
from torchyard.jobs import actions
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import local_runs, runs
from torchyard.jobs.requests.local_runs import LocalRunMonitor, LocalRunSpec
from torchyard.jobs.services import Services
from torchyard.workspaces import actions as workspaces


def created(services: Services, name: str = "birds_1") -> Job:
    with services.db.write() as connection:
        experiment_id = actions.ensure_experiment(
            connection, services.clock, support.WORKSPACE, "birds"
        )
    return local_runs.create(
        services,
        support.WORKSPACE,
        name,
        experiment_id=experiment_id.id,
        owner="me",
        parent="",
        variables={},
        spec=LocalRunSpec(script="train.py"),
    )


def passes(clock: FakeClock, ear: LocalRunMonitor, seconds: int) -> None:
    """Advance the clock, with the rounds of a running server."""
    for _ in range(0, seconds, 10):
        clock.advance(10)
        ear.check()


def status(services: Services, job: Job) -> Status:
    return support.again(services, job).status


def test_a_run_goes_on_when_its_program_reports_again(services: Services, clock: FakeClock) -> None:
    ear, job = LocalRunMonitor(services), created(services)
    token = local_runs.begin(services, job, "laptop")
    local_runs.report(services, job, Status.RUNNING)
    started = support.again(services, job).started_at
    passes(clock, ear, 50)
    assert status(services, job) is Status.RUNNING
    passes(clock, ear, 20)
    assert status(services, job) is Status.NOT_RESPONDING
    passes(clock, ear, 600)
    given_up = support.again(services, job)
    assert given_up.status is Status.FAILED and given_up.error is not None
    assert given_up.error.code == local_runs.SILENT and "`laptop`" in given_up.error.message
    assert workspaces.is_known(services.db, clock, token), "its machine may have slept"
    again = local_runs.report(services, job, Status.RUNNING)
    assert (again.status, again.error, again.ended_at) == (Status.RUNNING, None, None)
    assert again.started_at == started
    done = local_runs.report(services, job, Status.COMPLETED, 0)
    assert (done.status, done.exit_code) == (Status.COMPLETED, 0)
    assert not workspaces.is_known(services.db, clock, token)


def test_a_late_end_still_ends_the_run(services: Services, clock: FakeClock) -> None:
    ear, job = LocalRunMonitor(services), created(services)
    passes(clock, ear, 700)
    assert status(services, job) is Status.FAILED
    done = local_runs.report(services, job, Status.COMPLETED, 0)
    assert (done.status, done.error) == (Status.COMPLETED, None)


def test_a_run_that_never_comes_back_is_forgotten(services: Services, clock: FakeClock) -> None:
    ear, job = LocalRunMonitor(services, forgotten_after_s=900), created(services)
    token = local_runs.begin(services, job, "laptop")
    passes(clock, ear, 800)
    assert workspaces.is_known(services.db, clock, token)
    passes(clock, ear, 200)
    assert status(services, job) is Status.FAILED
    assert not workspaces.is_known(services.db, clock, token)
    assert not list((services.home / "local-runs").iterdir())


def test_silence_counts_from_the_restart_of_the_server(
    services: Services, clock: FakeClock
) -> None:
    ear, job = LocalRunMonitor(services), created(services)
    local_runs.report(services, job, Status.RUNNING)
    clock.advance(3000)
    ear.check()
    LocalRunMonitor(services).check()
    assert status(services, job) is Status.RUNNING


def test_a_canceled_run_stays_so(services: Services, clock: FakeClock) -> None:
    ear, job = LocalRunMonitor(services), created(services)
    token = local_runs.begin(services, job, "laptop")
    actions.cancel(services, support.WORKSPACE, job.name)
    assert local_runs.report(services, job, Status.RUNNING).status is Status.CANCELED
    assert local_runs.report(services, job, Status.COMPLETED, 0).status is Status.CANCELED
    assert not workspaces.is_known(services.db, clock, token)
    passes(clock, ear, 700)
    assert status(services, job) is Status.CANCELED
    assert not list((services.home / "local-runs").iterdir()), "nobody listens for it any more"


def test_a_name_belongs_to_one_run(services: Services) -> None:
    first = created(services)
    assert created(services).id == first.id
    runs.create_run(
        services,
        runs.RunRequest(
            support.WORKSPACE,
            experiment_id=first.experiment_id,
            owner="me",
            display_name="",
            started_at=services.clock.now(),
            parent="",
            tags={},
            name="plain",
        ),
    )
    with pytest.raises(Conflict, match="`plain` exists already"):
        created(services, "plain")
    assert not local_runs.is_local(actions.get(services, support.WORKSPACE, "plain"))
