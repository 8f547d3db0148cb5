"""Runs in a user's own Python, on the user's own machine, as the server has them."""

from __future__ import annotations

import pytest

from jobs import support
from torchyard.base.clock import FakeClock
from torchyard.base.errors import Conflict
from torchyard.jobs import actions
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import local_runs, runs
from torchyard.jobs.services import Services
from torchyard.workspaces import actions as workspaces


def created(services: Services, name: str = "birds_1") -> Job:
    with services.db.write() as connection:
        experiment = actions.ensure_experiment(
            connection, services.clock, support.WORKSPACE, "birds"
        )
    return local_runs.create(
        services,
        support.WORKSPACE,
        name,
        experiment_id=experiment.id,
        owner="me",
        parent="",
        variables={},
        definition={"script": "train.py"},
    )


def test_its_token_is_good_until_the_run_ends(services: Services, clock: FakeClock) -> None:
    job = created(services)
    token = local_runs.begin(services, job)
    running = support.again(services, job)
    assert (running.status, running.started_at) == (Status.RUNNING, clock.now())
    assert workspaces.is_known(services.db, clock, token)
    done = local_runs.end(services, job, Status.FAILED, 3, "it ended")
    assert done.error is not None
    assert (done.status, done.exit_code, done.error.code) == (Status.FAILED, 3, "script_failed")
    assert not workspaces.is_known(services.db, clock, token)


def test_a_canceled_run_stays_so(services: Services, clock: FakeClock) -> None:
    job = created(services)
    token = local_runs.begin(services, job)
    actions.cancel(services, support.WORKSPACE, job.name)
    assert local_runs.end(services, job, Status.COMPLETED, 0, "").status is Status.CANCELED
    assert not workspaces.is_known(services.db, clock, token)
    with pytest.raises(Conflict):
        local_runs.begin(services, job)


def test_a_run_may_end_that_never_began(services: Services) -> None:
    job = created(services)
    assert local_runs.end(services, job, Status.COMPLETED, 0, "").status is Status.COMPLETED


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
