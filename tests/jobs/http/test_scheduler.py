from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from eventually import eventually
from jobs import support
from jobs.support import Worker, again, attempt_of, submit
from torchyard.base.clock import FakeClock
from torchyard.base.errors import Conflict, InvalidSpec, NotAuthenticated, NotFound
from torchyard.compute import actions as computes
from torchyard.environments.packages.python_choice import Taken
from torchyard.executors.executor import Handle
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.actions import job_key
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.attempts import worker_reports
from torchyard.jobs.records import progress
from torchyard.jobs.records.job_events import StatusChanged, notices_of
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import job_queries, submission
from torchyard.jobs.requests.job_queries import ListRequest
from torchyard.jobs.requests.to_json import job_json
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.shared.plan import LaunchPlan
from torchyard.workspaces import actions as workspaces


def _busy(services: Services) -> int:
    return computes.use(services.db, computes.get(services.db, support.WORKSPACE, "local")).busy


def test_a_job_runs_from_submission_to_completion(
    services: Services, scheduler: Scheduler, clock: FakeClock
) -> None:
    job = submit(services)
    assert job.status is Status.NOT_STARTED
    clock.advance(1)
    scheduler.run_round()
    assert again(services, job).status is Status.STARTING
    assert _busy(services) == 1
    clock.advance(1)
    Worker(services, attempt_of(services, job)).whole_life()
    done = again(services, job)
    assert (done.status, done.exit_code, done.error) == (Status.COMPLETED, 0, None)
    assert _busy(services) == 0
    events = actions.events(services.db, job)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [
        event.body.status.value for event in events if isinstance(event.body, StatusChanged)
    ] == [
        "NotStarted",
        "Preparing",
        "Queued",
        "Starting",
        "Running",
        "Finalizing",
        "Completed",
    ]
    spans = progress.timeline(events)
    assert [span.name.value for span in spans] == [
        "Preparing",
        "Scaling",
        "Running",
        "Post-Processing",
    ]
    assert all(span.end is not None and span.start <= span.end for span in spans)


def test_a_long_round_leaves_the_rest_to_the_next(services: Services, clock: FakeClock) -> None:
    """By the services' clock: while it stands still, no round ends, however slow the machine is."""

    class Slow(FakeExecutor):
        def launch(self, plan: LaunchPlan) -> Handle:
            clock.advance(2)
            return super().launch(plan)

    scheduler = Scheduler(services, Slow(), "http://127.0.0.1:1")
    jobs = [submit(services) for _ in range(3)]
    for started in (1, 2, 3):
        services.wakeup.clear()
        scheduler.run_round()
        statuses = [again(services, job).status for job in jobs]
        assert statuses == [Status.STARTING] * started + [Status.QUEUED] * (3 - started)
        assert services.wakeup.is_set(), "the next round is to come at once"


@pytest.mark.parametrize(
    ("has_chores", "status"), [(True, Status.NOT_RESPONDING), (False, Status.RUNNING)]
)
def test_only_rounds_with_chores_look_for_silent_workers(
    services: Services, scheduler: Scheduler, clock: FakeClock, has_chores: bool, status: Status
) -> None:
    job = submit(services)
    scheduler.run_round(has_chores=False)
    worker = Worker(services, attempt_of(services, job))
    worker.tell("node_started", hostname="h", pid=1, addresses=[])
    worker.tell("ranks_started", ranks=[])
    for _ in range(8):
        clock.advance(5)
        scheduler.run_round(has_chores)
    assert again(services, job).status is status


def test_all_nodes_or_none_in_the_order_of_submission(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    first = submit(services, resources={"instance_count": 3})
    second = submit(services, resources={"instance_count": 4})
    third = submit(services)
    scheduler.run_round()
    assert _busy(services) == 3
    assert again(services, second).status is Status.QUEUED
    # One node is free, but the third job does not overtake the second, which needs it, too.
    assert again(services, third).status is Status.QUEUED
    assert waiting_reasons.describe(services, again(services, second)) == (
        "needs 4 nodes; 1 of 4 nodes of `local` is free; "
        f"in use by `{first.name}` of `me` (3 nodes, no time limit)"
    )
    assert waiting_reasons.describe(services, again(services, third)) == (
        "needs 1 node; 1 of 4 nodes of `local` is free; it is 2nd in the queue, behind job "
        f"`{second.name}`, for which it is reserved"
    )
    for node in range(3):
        Worker(services, attempt_of(services, first), node).whole_life()
    scheduler.run_round()
    assert again(services, first).status is Status.COMPLETED
    assert again(services, second).status is Status.STARTING
    assert again(services, third).status is Status.QUEUED
    assert waiting_reasons.describe(services, again(services, third)) == (
        "needs 1 node; 0 of 4 nodes of `local` are free; "
        f"in use by `{second.name}` of `me` (4 nodes, no time limit)"
    )


def test_a_job_is_told_once_that_it_waits_or_that_it_has_nodes(
    services: Services, scheduler: Scheduler
) -> None:
    told: list[str] = []
    services.signals.listen(told.append)
    jobs = [submit(services, resources={"instance_count": 3}) for _ in range(2)]
    told.clear()
    scheduler.run_round()
    statuses = [again(services, job).status for job in jobs]
    assert statuses == [Status.STARTING, Status.QUEUED]
    assert [told.count(job_key(job)) for job in jobs] == [1, 1]
    told.clear()
    scheduler.run_round()
    assert told == []


def test_a_job_that_is_to_be_retried_wakes_the_scheduler_once_its_nodes_are_clean(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    retry = {"torchyard.retry.max_attempts": 2, "torchyard.retry.backoff_s": 0}
    job = submit(services, properties=retry)
    scheduler.run_round()
    for status, wakes in ((Status.QUEUED, True), (Status.FAILED, False)):
        attempt = attempt_of(services, job)
        Worker(services, attempt).fails(75)
        assert again(services, job).status is status
        executor.finish(attempt.id)
        services.wakeup.clear()
        scheduler.run_round()
        assert services.wakeup.is_set() == wakes
        scheduler.run_round()


def test_a_job_that_waits_says_who_has_its_nodes_and_until_when(
    services: Services, scheduler: Scheduler, clock: FakeClock
) -> None:
    for number in range(3):
        submit(services, name=f"small-{number}", limits={"timeout": 3600})
    scheduler.run_round()
    waits = submit(services, resources={"instance_count": 4})
    scheduler.run_round()
    reason = waiting_reasons.describe(services, again(services, waits))
    until = f"{clock.now() + timedelta(seconds=3720):%Y-%m-%d %H:%M} UTC at most"
    assert reason == (
        "needs 4 nodes; 1 of 4 nodes of `local` is free; in use by "
        f"`small-0` of `me` (1 node, until {until}), `small-1` of `me` (1 node, until {until}) "
        f"and `small-2` of `me` (1 node, until {until})"
    )


def test_an_environment_is_built_before_nodes_are_held(
    services: Services, scheduler: Scheduler
) -> None:
    environments: Any = services.environments
    environments.unbuilt.add("slow")
    jobs = [submit(services, environment="slow") for _ in range(3)]
    scheduler.preparer.prepare()
    scheduler.preparer.prepare()
    assert [again(services, job).status for job in jobs] == [Status.PREPARING] * 3
    environments.go_on.set()
    scheduler.preparer._builders.shutdown()
    assert environments.built == ["slow"]
    assert _busy(services) == 0
    scheduler.run_round()
    assert [again(services, job).status for job in jobs] == [Status.STARTING] * 3
    spans = progress.timeline(actions.events(services.db, jobs[0]))
    assert spans[0].waited_for == "the environment is being built"


def test_a_runner_that_is_killed_during_a_build_fails_no_job(
    services: Services, scheduler: Scheduler
) -> None:
    environments: Any = services.environments
    environments.unbuilt.add("slow")
    environments.runner_away = 1
    environments.go_on.set()
    jobs = [submit(services, environment="slow") for _ in range(2)]

    def is_built() -> bool:
        scheduler.preparer.prepare()
        return not environments.unbuilt

    eventually(is_built, "the build was begun again")
    scheduler.preparer._builders.shutdown()
    assert environments.built == ["slow"] * 2
    scheduler.run_round()
    assert [again(services, job).status for job in jobs] == [Status.STARTING] * 2


def test_the_jobs_that_waited_are_told_of_the_python_that_a_build_took(
    services: Services, scheduler: Scheduler
) -> None:
    environments: Any = services.environments
    environments.unbuilt.add("pinned")
    environments.taken = Taken("3.9", "`llvmlite==0.36` has no wheel for Python 3.11")
    jobs = [submit(services, environment="pinned") for _ in range(2)]
    scheduler.preparer.prepare()
    environments.go_on.set()
    scheduler.preparer._builders.shutdown()
    notice = ("the environment has Python 3.9: `llvmlite==0.36` has no wheel for Python 3.11",)
    for job in jobs:
        assert tuple(notices_of(actions.events(services.db, job))) == notice


def test_a_job_says_that_its_environment_waits_for_other_builds(
    services: Services, scheduler: Scheduler
) -> None:
    environments: Any = services.environments
    names = ["first", "second", "third", "fourth"]
    environments.unbuilt.update(names)
    jobs = [submit(services, environment=name) for name in names]

    def stages(job: Job) -> list[str]:
        spans = progress.timeline(actions.events(services.db, again(services, job)))
        assert {span.name.value for span in spans} == {"Preparing"}
        return [span.waited_for for span in spans]

    built = "the environment is being built"
    scheduler.preparer.prepare()
    assert [stages(job)[-1] for job in jobs] == [
        built, built, "the environment is built after 2 others",
        "the environment is built after 3 others",
    ]  # fmt: skip
    late = submit(services, environment="third")
    scheduler.preparer.prepare()
    assert stages(late) == ["the environment is built after 2 others"]
    environments.go_on.set()
    scheduler.preparer._builders.shutdown()
    assert sorted(environments.built) == sorted(names)
    assert stages(jobs[0]) == [built]
    assert stages(jobs[2]) == stages(late) == ["the environment is built after 2 others", built]
    assert stages(jobs[3]) == ["the environment is built after 3 others", built]


def test_a_failed_build_fails_its_jobs(services: Services, scheduler: Scheduler) -> None:
    services.environments.broken.add("bad")  # type: ignore[attr-defined]
    services.environments.go_on.set()  # type: ignore[attr-defined]
    job = submit(services, environment="bad")
    scheduler.preparer.prepare()
    scheduler.preparer._builders.shutdown()
    failed = again(services, job)
    assert failed.status is Status.FAILED
    assert failed.error is not None
    assert failed.error.code == "build_failed"
    assert "`nope`" in failed.error.message
    assert [span.name.value for span in progress.timeline(actions.events(services.db, job))] == [
        "Preparing"
    ]


def test_the_earliest_failure_is_the_jobs_error(
    services: Services, scheduler: Scheduler, clock: FakeClock
) -> None:
    job = submit(services, resources={"instance_count": 2})
    scheduler.run_round()
    attempt = attempt_of(services, job)
    late, early = Worker(services, attempt, 0), Worker(services, attempt, 1)
    late.tell("ranks_started", ranks=[])
    early.tell("ranks_started", ranks=[])
    early.tell("rank_exited", rank=1, local_rank=0, exit_code=7, signal=None)
    assert worker_reports.stop_request(services, attempt.id) == worker_reports.StopRequest(
        "stop", "failed"
    )
    clock.advance(1)
    # Node 0 dies because of the stop request, and reports first.
    late.tell("rank_exited", rank=0, local_rank=0, exit_code=None, signal=15)
    late.tell("node_exited", exit_code=143, error={"code": "stopped", "message": "stopped"})
    assert again(services, job).status is Status.RUNNING
    early.tell("node_exited", exit_code=7, error={"code": "rank_failed", "message": "rank 1 …"})
    failed = again(services, job)
    assert (failed.status, failed.exit_code) == (Status.FAILED, 7)
    assert failed.error is not None and failed.error.code == "rank_failed"


def test_repeated_reports_change_nothing(services: Services, scheduler: Scheduler) -> None:
    job = submit(services)
    scheduler.run_round()
    worker = Worker(services, attempt_of(services, job))
    worker.tell("ranks_started", ranks=[])
    before = actions.events(services.db, job)
    worker.seq = 0
    worker.tell("ranks_started", ranks=[])
    assert actions.events(services.db, job) == before


def test_a_lost_worker_fails_the_job_and_stops_the_others(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services, resources={"instance_count": 2})
    scheduler.run_round()
    attempt = attempt_of(services, job)
    other = Worker(services, attempt, 0)
    other.tell("ranks_started", ranks=[])
    executor.lose(attempt.id, 1)
    scheduler.run_round()
    assert worker_reports.stop_request(services, attempt.id).control == "stop"
    other.tell("node_exited", exit_code=143, error={"code": "stopped", "message": ""})
    failed = again(services, job)
    assert failed.status is Status.FAILED
    assert failed.error is not None and failed.error.code == "worker_lost"
    assert "node 1" in failed.error.message
    assert _busy(services) == 0


def test_a_job_can_be_canceled_in_every_state(services: Services, scheduler: Scheduler) -> None:
    fresh = submit(services)
    assert actions.cancel(services, support.WORKSPACE, fresh.name).status is Status.CANCELED
    running = submit(services)
    scheduler.run_round()
    worker = Worker(services, attempt_of(services, running))
    worker.tell("ranks_started", ranks=[])
    canceled = actions.cancel(services, support.WORKSPACE, running.name)
    assert canceled.status is Status.CANCEL_REQUESTED
    assert worker_reports.stop_request(services, worker.attempt.id) == worker_reports.StopRequest(
        "stop", "cancel"
    )
    worker.tell("rank_exited", rank=0, local_rank=0, exit_code=None, signal=15)
    worker.tell("node_exited", exit_code=143, error={"code": "stopped", "message": ""})
    ended = again(services, running)
    assert (ended.status, ended.error) == (Status.CANCELED, None)
    assert actions.cancel(services, support.WORKSPACE, running.name).status is Status.CANCELED


@pytest.mark.parametrize("canceled_before", [False, True])
def test_a_cancel_may_skip_the_grace_period(
    services: Services, scheduler: Scheduler, canceled_before: bool
) -> None:
    job = submit(services)
    scheduler.run_round()
    worker = Worker(services, attempt_of(services, job))
    if canceled_before:
        actions.cancel(services, support.WORKSPACE, job.name)
    actions.cancel(services, support.WORKSPACE, job.name, kill=True)
    assert worker_reports.stop_request(services, worker.attempt.id) == worker_reports.StopRequest(
        "kill", "cancel"
    )
    # A plain cancel after it gives no grace back.
    assert actions.cancel(services, support.WORKSPACE, job.name).status is Status.CANCEL_REQUESTED
    assert worker_reports.stop_request(services, worker.attempt.id).control == "kill"


def test_a_server_that_died_before_the_launch_launches_again(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services)
    scheduler.preparer.prepare()
    attempt = scheduler.claimer.claim_one(job.id).attempt
    assert attempt is not None
    assert executor.launches == []
    Scheduler(services, executor, "http://127.0.0.1:1").run_round()
    assert [plan.attempt_id for plan in executor.launches] == [attempt.id]
    assert attempt_of(services, job).handle is not None


def test_a_launch_that_fails_gives_everything_back(
    services: Services, executor: FakeExecutor
) -> None:
    class Broken(FakeExecutor):
        def launch(self, plan):  # type: ignore[no-untyped-def]
            raise OSError("no space left on device")

    job = submit(services)
    Scheduler(services, Broken(), "http://127.0.0.1:1").run_round()
    failed = again(services, job)
    assert failed.status is Status.FAILED
    assert failed.error is not None and "no space left" in failed.error.message
    assert _busy(services) == 0


def test_tokens_end_with_the_attempt(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services)
    scheduler.run_round()
    plan = executor.launches[0]
    for token in (plan.report_token, plan.run_token):
        assert workspaces.authenticate(services.db, services.clock, token).user == "me"
    Worker(services, attempt_of(services, job)).whole_life()
    for token in (plan.report_token, plan.run_token):
        with pytest.raises(NotAuthenticated):
            workspaces.authenticate(services.db, services.clock, token)


def test_submitting_the_same_job_twice_creates_one(services: Services) -> None:
    job = submit(services, name="mine")
    two, is_new = submission.create(
        services, support.WORKSPACE, {**support.JOB, "name": "mine"}, support.ME
    )
    assert (two.id, is_new) == (job.id, False)
    with pytest.raises(Conflict, match="another content"):
        submit(services, name="mine", command="false")


def test_a_job_that_can_never_run_is_refused_at_once(services: Services) -> None:
    with pytest.raises(InvalidSpec, match="at most 4") as too_many:
        submit(services, resources={"instance_count": 5})
    assert too_many.value.at == ("resources", "instance_count")
    with pytest.raises(InvalidSpec, match="`gpu` does not exist") as no_compute:
        submit(services, compute="azureml:gpu")
    assert (no_compute.value.code, no_compute.value.at) == ("compute_not_found", ("compute",))
    with pytest.raises(InvalidSpec) as no_code:
        submit(services, code="snapshot:" + "0" * 64)
    assert no_code.value.at == ("code",)
    assert job_queries.list_in(services, support.WORKSPACE) == []


def test_an_unknown_job_names_the_nearest(services: Services) -> None:
    submit(services, name="train-resnet")
    with pytest.raises(NotFound) as unknown:
        actions.get(services, support.WORKSPACE, "train-resnt")
    assert unknown.value.hint == "did you mean `train-resnet`?"


def test_lists_are_paged_and_filtered(services: Services) -> None:
    for number in range(5):
        submit(services, name=f"j{number}", experiment_name="odd" if number % 2 else "even")
    newest = job_queries.list_in(services, support.WORKSPACE, limit=2)
    assert [job.name for job in newest] == ["j4", "j3"]
    rest = job_queries.list_in(services, support.WORKSPACE, before=newest[-1].id)
    assert [job.name for job in rest] == ["j2", "j1", "j0"]
    odd = job_queries.list_in(services, support.WORKSPACE, experiment_name="odd")
    assert [job.name for job in odd] == ["j3", "j1"]
    with pytest.raises(InvalidSpec, match="not a job status"):
        job_queries.list_page(services, support.WORKSPACE, ListRequest(status="Runing"))


@pytest.mark.parametrize("seconds", [48 * 3600, -48 * 3600])
def test_a_clock_that_is_set_changes_no_duration(
    services: Services, scheduler: Scheduler, clock: FakeClock, seconds: int
) -> None:
    job = submit(services)
    scheduler.run_round()
    worker = Worker(services, attempt_of(services, job))
    worker.tell("ranks_started", ranks=[])
    clock.advance(20)
    clock.set_by(seconds)
    clock.advance(10)
    worker.tell("rank_exited", rank=0, local_rank=0, exit_code=0, signal=None)
    worker.tell("node_finalizing")
    worker.tell("node_exited", exit_code=0, error=None)
    body = job_json(services, again(services, job))
    assert body["duration_s"] == 30
    assert [stage["duration_s"] for stage in body["stages"]] == [0, 0, 30, 0]
