"""Jobs that are claimed in a round: all of them start, and a failure is one job's alone."""

from __future__ import annotations

from typing import cast

import pytest

from eventually import eventually
from jobs.support import WORKSPACE, FakeEnvironments, again, attempt_of, submit
from torchyard.compute import actions as computes
from torchyard.executors.executor import Handle
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.shared.plan import LaunchPlan


def queued(services: Services, scheduler: Scheduler, count: int) -> list[Job]:
    """Jobs that wait for nodes of a cluster that has one for each."""
    document = {"name": "wide", "max_instances": 64}
    computes.create(services.db, services.clock, WORKSPACE, document)
    jobs = [submit(services, compute="wide") for _ in range(count)]
    scheduler.preparer.prepare()
    return jobs


def statuses(services: Services, jobs: list[Job]) -> list[Status]:
    return [again(services, job).status for job in jobs]


def test_every_job_that_fits_starts_in_one_round(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    jobs = queued(services, scheduler, 20)
    scheduler.claimer.claim()
    assert statuses(services, jobs) == [Status.STARTING] * 20
    assert len(executor.launches) == 20
    compute = computes.get(services.db, WORKSPACE, "wide")
    attempt_ids = [node.attempt_id for node in computes.nodes_of(services.db, compute)]
    assert len(attempt_ids) == 20 and set(attempt_ids) == {
        attempt_of(services, job).id for job in jobs
    }


def test_a_server_killed_before_the_launches_starts_each_job_once(
    services: Services, executor: FakeExecutor
) -> None:
    class Killed(BaseException):
        """As SIGKILL: nothing after it runs."""

    class Dying(FakeExecutor):
        def launch(self, plan: LaunchPlan) -> Handle:
            if len(executor.launches) == 3:
                raise Killed
            return executor.launch(plan)

    dying = Scheduler(services, Dying(), "http://127.0.0.1:1")
    jobs = queued(services, dying, 6)
    with pytest.raises(Killed):
        dying.claimer.claim()
    dying.preparer.close()
    # Those that come later have not been claimed yet.
    assert statuses(services, jobs) == [Status.STARTING] * 4 + [Status.QUEUED] * 2
    following = Scheduler(services, executor, "http://127.0.0.1:1")
    following.run_round()
    following.preparer.close()
    # Launching the same attempt twice starts it once.
    started = {plan.attempt_id for plan in executor.launches}
    assert started == {attempt_of(services, job).id for job in jobs}
    assert all(attempt_of(services, job).number == 1 for job in jobs)
    assert all(attempt_of(services, job).handle is not None for job in jobs)


def test_a_job_that_can_t_be_claimed_lets_the_others_start(
    services: Services, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = queued(services, scheduler, 5)
    bad = jobs[2]
    with services.db.write() as connection:
        # No release of ours wrote that.
        store.change_job(connection, bad.id, avoided_slots=["none"])  # type: ignore[list-item]
    scheduler.claimer.claim()
    expected = [Status.STARTING] * 5
    assert [s for s in statuses(services, jobs) if s is Status.STARTING] == expected[:4]
    assert again(services, bad).status is Status.QUEUED


def test_a_launch_that_fails_fails_its_own_job(services: Services) -> None:
    class Picky(FakeExecutor):
        def launch(self, plan: LaunchPlan) -> Handle:
            if plan.job == jobs[1].name:
                raise ValueError("no such node")
            return super().launch(plan)

    scheduler = Scheduler(services, Picky(), "http://127.0.0.1:1")
    jobs = queued(services, scheduler, 4)
    scheduler.claimer.claim()
    scheduler.preparer.close()
    started = Status.STARTING
    assert statuses(services, jobs) == [started, Status.FAILED, started, started]
    launched = [attempt_of(services, job).handle is not None for job in jobs]
    assert launched == [True, False, True, True]


def test_a_queued_job_whose_environment_is_gone_is_prepared_again(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    [job] = queued(services, scheduler, 1)
    environments = cast(FakeEnvironments, services.environments)
    environments.unbuilt.add("python")
    scheduler.claimer.claim()
    assert again(services, job).status is Status.PREPARING
    assert not executor.launches
    with services.db.read() as connection:
        assert attempt_store.attempts_of(connection, job.id) == []
    environments.go_on.set()
    eventually(lambda: prepared(scheduler, environments), "the environment is built again")
    scheduler.run_round()
    scheduler.run_round()
    assert again(services, job).status is Status.STARTING
    assert (attempt_of(services, job).number, environments.built) == (1, ["python"])


def prepared(scheduler: Scheduler, environments: FakeEnvironments) -> bool:
    scheduler.preparer.prepare()
    return not environments.unbuilt
