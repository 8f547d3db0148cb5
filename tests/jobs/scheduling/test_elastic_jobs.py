"""How many nodes an elastic job gets: at its start, after a loss, when some become free."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from jobs import support
from jobs.lab import Lab
from jobs.support import WORKSPACE, Worker, again, attempt_of, submit
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidSpec
from torchyard.compute import actions as computes
from torchyard.executors.executor import EngineCluster, EngineNode
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.attempts import losses, worker_reports
from torchyard.jobs.attempts.losses import Try
from torchyard.jobs.files import artifacts
from torchyard.jobs.history import rewinds
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Attempt, Job, Status
from torchyard.jobs.requests.to_json import job_json
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.scheduling import shrinking
from torchyard.jobs.scheduling.shrinking import Giver
from torchyard.jobs.services import Services
from torchyard.workspaces import quotas
from torchyard.workspaces.types import ALL

PAUSE_S = 60
NODES = 4


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    made = support.make_services(tmp_path, db, clock)
    has_nodes(made, NODES)
    return made


def has_nodes(services: Services, count: int) -> None:
    document = {"name": "machines", "max_instances": count}
    computes.create(services.db, services.clock, WORKSPACE, document, home=services.home)


def elastic(least: int = 1, maximum: int = NODES, **changes: Any) -> dict[str, Any]:
    sizes = {"min_nodes": least, "max_nodes": maximum, "grow_after": f"{PAUSE_S}s"}
    return {"compute": "machines", "torchyard": sizes, **changes}


def rounds(scheduler: Scheduler, count: int = 2) -> None:
    for _ in range(count):
        scheduler.run_round()
        assert scheduler.trouble == ""


def runs(services: Services, scheduler: Scheduler, job: Job) -> Attempt:
    """Its attempt, whose ranks have started."""
    rounds(scheduler)
    assert again(services, job).status is Status.STARTING
    attempt = attempt_of(services, job)
    for node in range(attempt.node_count):
        Worker(services, attempt, node).tell("ranks_started", ranks=[])
    assert again(services, job).status is Status.RUNNING
    saves(services, job)
    return attempt


def saves(services: Services, job: Job) -> None:
    """A checkpoint, which the server gets at once."""
    with artifacts.writing(services.datastores, job, "outputs/checkpoints/1/rank") as file:
        file.write(b"1")


def started(services: Services, scheduler: Scheduler, **document: Any) -> tuple[Job, Attempt]:
    job = submit(services, **document)
    return job, runs(services, scheduler, job)


def loses(services: Services, executor: FakeExecutor, attempt: Attempt, node: int) -> None:
    """A node's worker is gone, and the others are told to end."""
    worker_reports.lose(services, attempt.id, node)
    others_end(services, executor, attempt, "stopped", without=(node,))


def others_end(
    services: Services,
    executor: FakeExecutor,
    attempt: Attempt,
    code: str,
    without: tuple[int, ...] = (),
) -> None:
    for node in range(attempt.node_count):
        if node not in without:
            error = {"code": code, "message": f"node {node} was stopped"}
            Worker(services, attempt, node, seq=1).tell("node_exited", exit_code=143, error=error)
    executor.finish(attempt.id)


def ends(services: Services, executor: FakeExecutor, job: Job) -> None:
    attempt = attempt_of(services, job)
    for node in range(attempt.node_count):
        Worker(services, attempt, node, seq=1).tell("node_exited", exit_code=0, error=None)
    executor.finish(attempt.id)


def sizes_of(services: Services, job: Job) -> list[int]:
    return [each["node_count"] for each in job_json(services, again(services, job))["attempts"]]


def notices(services: Services, job: Job) -> list[str]:
    return list(notices_of(actions.events(services.db, job, 0)))


def test_it_starts_with_the_nodes_that_are_free(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    submit(services, compute="machines", resources={"instance_count": 3})
    rounds(scheduler)
    job, attempt = started(services, scheduler, **elastic())
    assert attempt.node_count == again(services, job).node_count == 1
    assert executor.launches[-1].node_count == 1
    assert "starts with 1 node; it may have 1 to 4" in notices(services, job)
    variables = executor.launches[-1].variables
    assert (variables["TORCHYARD_MIN_NODES"], variables["TORCHYARD_MAX_NODES"]) == ("1", "4")


@pytest.mark.parametrize(("document", "expected"), [
    (elastic(), 4),
    (elastic(maximum=3), 3),
    (elastic(resources={"instance_count": 2}), 2),
    (elastic(least=4, maximum=9), 4),
])  # fmt: skip
def test_it_starts_with_as_many_as_it_may_have(
    services: Services, scheduler: Scheduler, document: dict[str, Any], expected: int
) -> None:
    job, attempt = started(services, scheduler, **document)
    assert attempt.node_count == expected
    assert sizes_of(services, job) == [expected]


def test_it_waits_until_its_fewest_are_free(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    other = submit(services, compute="machines", resources={"instance_count": 3})
    rounds(scheduler)
    job = submit(services, **elastic(least=2))
    rounds(scheduler)
    waiting = waiting_reasons.describe(services, again(services, job))
    assert waiting == (
        "needs 2 nodes; 1 of 4 nodes of `machines` is free; "
        f"in use by `{other.name}` of `me` (3 nodes, no time limit)"
    )
    for node in range(3):
        Worker(services, attempt_of(services, other), node).tell("ranks_started", ranks=[])
    ends(services, executor, other)
    assert runs(services, scheduler, job).node_count == 4


def test_a_compute_that_never_has_its_fewest_is_refused(services: Services) -> None:
    with pytest.raises(InvalidSpec) as error:
        submit(services, **elastic(least=5, maximum=9))
    assert error.value.code == "too_many_nodes"
    assert tuple(error.value.at) == ("properties", "torchyard.min_nodes")


def test_it_leaves_the_nodes_that_a_job_in_front_of_it_needs(
    services: Services, scheduler: Scheduler
) -> None:
    submit(services, compute="machines", resources={"instance_count": 2})
    rounds(scheduler)
    first = submit(services, compute="machines", resources={"instance_count": 3})
    rounds(scheduler)
    _job, attempt = started(services, scheduler, **elastic())
    # Whenever the first one starts, it has four nodes to choose three of.
    assert attempt.node_count == 1
    assert again(services, first).status is Status.QUEUED


def test_a_lost_node_is_left_out(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    computes_of_two(services)
    job, attempt = started(services, scheduler, **elastic(maximum=2))
    loses(services, executor, attempt, 1)
    waiting = again(services, job)
    assert (waiting.status, waiting.node_count, waiting.error) == (Status.QUEUED, 1, None)
    second = runs(services, scheduler, job)
    assert (second.number, second.node_count) == (2, 1)
    assert executor.launches[-1].job == job.name
    assert "goes on with 1 node: node 1 was lost" in notices(services, job)
    assert sizes_of(services, job) == [2, 1]
    (before, _) = job_json(services, again(services, job))["attempts"]
    assert before["error"] is not None and before["error"]["code"] == "worker_lost"


def computes_of_two(services: Services) -> None:
    """The cluster has no third node to take the place of a lost one."""
    has_nodes(services, 2)


def test_other_free_nodes_take_the_place_of_a_lost_one(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job, attempt = started(services, scheduler, **elastic(maximum=2))
    loses(services, executor, attempt, 1)
    assert runs(services, scheduler, job).node_count == 2


def test_a_lost_node_is_used_where_the_fewest_are_not_there_without_it(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    computes_of_two(services)
    job, attempt = started(services, scheduler, **elastic(least=2, maximum=2))
    loses(services, executor, attempt, 0)
    assert runs(services, scheduler, job).node_count == 2


def test_a_job_that_has_saved_nothing_is_not_restarted_to_grow(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    other = submit(services, compute="machines", resources={"instance_count": 3})
    rounds(scheduler)
    job = submit(services, **elastic())
    rounds(scheduler)
    Worker(services, attempt_of(services, job)).tell("ranks_started", ranks=[])
    for node in range(3):
        Worker(services, attempt_of(services, other), node).tell("ranks_started", ranks=[])
    ends(services, executor, other)
    clock.advance(2 * PAUSE_S)
    rounds(scheduler)
    assert attempt_of(services, job).order == ""
    saves(services, job)
    rounds(scheduler)
    assert attempt_of(services, job).order_reason == "resized"


def test_free_nodes_are_taken_after_the_pause(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    computes_of_two(services)
    job, attempt = started(services, scheduler, **elastic(maximum=2))
    loses(services, executor, attempt, 1)
    second = runs(services, scheduler, job)
    clock.advance(PAUSE_S - 1)
    rounds(scheduler)
    assert attempt_of(services, job).order == ""
    clock.advance(1)
    rounds(scheduler)
    leaving = attempt_of(services, job)
    assert (leaving.id, leaving.order, leaving.order_reason) == (second.id, "stop", "resized")
    others_end(services, executor, second, "resized")
    assert again(services, job).status is Status.QUEUED
    third = runs(services, scheduler, job)
    assert (third.number, third.node_count) == (3, 2)
    assert sizes_of(services, job) == [2, 1, 2]
    assert "goes on with 2 nodes: a node of `machines` is free" in notices(services, job)
    ends(services, executor, job)
    done = again(services, job)
    assert (done.status, done.node_count, done.exit_code) == (Status.COMPLETED, 2, 0)


def test_nodes_that_another_job_waits_for_are_not_taken(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job, _ = started(services, scheduler, **elastic(resources={"instance_count": 1}))
    _blocker, _ = started(services, scheduler, compute="machines", resources={"instance_count": 2})
    submit(services, compute="machines", resources={"instance_count": 3})
    clock.advance(PAUSE_S)
    rounds(scheduler)
    assert attempt_of(services, job).order == ""


def test_nodes_are_given_to_a_job_that_waits(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job, first = started(services, scheduler, **elastic())
    other = submit(services, compute="machines", resources={"instance_count": 2})
    clock.advance(PAUSE_S - 1)
    rounds(scheduler)
    assert attempt_of(services, job).order == ""
    clock.advance(1)
    rounds(scheduler)
    assert attempt_of(services, job).order_reason == "resized"
    others_end(services, executor, first, "resized")
    second = runs(services, scheduler, job)
    assert (second.number, second.node_count) == (2, 2)
    assert again(services, other).status is Status.STARTING
    assert f"goes on with 2 nodes: job `{other.name}` needs 2 nodes of `machines`" in notices(
        services, job
    )
    # Neither takes them from the other while both run.
    for node in range(2):
        Worker(services, attempt_of(services, other), node).tell("ranks_started", ranks=[])
    clock.advance(10 * PAUSE_S)
    rounds(scheduler)
    assert attempt_of(services, job).order == attempt_of(services, other).order == ""
    ends(services, executor, other)
    rounds(scheduler)
    assert attempt_of(services, job).order_reason == "resized"
    others_end(services, executor, second, "resized")
    assert runs(services, scheduler, job).node_count == 4


def test_two_elastic_jobs_share_a_cluster_and_stay_as_they_are(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job, first = started(services, scheduler, **elastic())
    other = submit(services, **elastic(least=2))
    clock.advance(PAUSE_S)
    rounds(scheduler)
    others_end(services, executor, first, "resized")
    runs(services, scheduler, job)
    attempts = [attempt_of(services, each) for each in (job, other)]
    assert sum(attempt.node_count for attempt in attempts) == NODES
    assert attempts[1].node_count >= 2
    for node in range(attempts[1].node_count):
        Worker(services, attempts[1], node).tell("ranks_started", ranks=[])
    clock.advance(10 * PAUSE_S)
    rounds(scheduler)
    assert [attempt_of(services, each).order for each in (job, other)] == ["", ""]


@pytest.mark.parametrize(("sizes", "count"), [
    (elastic(least=4), 1),
    (elastic(least=3), 2),
    (elastic(), 4),
])  # fmt: skip
def test_nothing_is_given_that_lets_the_waiting_job_not_start(
    services: Services,
    scheduler: Scheduler,
    clock: FakeClock,
    sizes: dict[str, Any],
    count: int,
) -> None:
    job, _ = started(services, scheduler, **sizes)
    submit(services, compute="machines", resources={"instance_count": count})
    clock.advance(PAUSE_S)
    rounds(scheduler)
    assert attempt_of(services, job).order == ""


def giver(name: str, maximum: int, began_s: float = 0.0) -> Giver:
    return Giver(name, began_s, maximum, {"nodes": 1})


@pytest.mark.parametrize(("needed", "free", "givers", "expected"), [
    (2, 1, [giver("a", 3)], {"a": 1}),
    (3, 0, [giver("a", 1), giver("b", 3)], {"b": 3}),
    (4, 0, [giver("a", 2, 1.0), giver("b", 3)], {"b": 3, "a": 1}),
    (1, 0, [giver("a", 1, 1.0), giver("b", 1, 2.0)], {"b": 1}),
    (5, 0, [giver("a", 1), giver("b", 3)], {}),
    (1, 0, [giver("a", 0)], {}),
])  # fmt: skip
def test_the_fewest_attempts_give_nodes(
    needed: int, free: int, givers: list[Giver], expected: dict[str, int]
) -> None:
    assert shrinking.gifts({"nodes": needed}, {"nodes": free}, givers) == expected


def limit(services: Services, **limits: int) -> None:
    quotas.change(services.db, services.clock, WORKSPACE, ALL, limits, "olga")


def test_a_quota_bounds_how_it_grows(
    services: Services, scheduler: Scheduler, clock: FakeClock
) -> None:
    limit(services, nodes=3, jobs=1)
    job, attempt = started(services, scheduler, **elastic())
    assert attempt.node_count == 3
    clock.advance(PAUSE_S)
    rounds(scheduler)
    assert attempt_of(services, job).order == ""
    limit(services, nodes=4)
    rounds(scheduler)
    assert attempt_of(services, job).order_reason == "resized"


def test_a_job_that_ends_while_it_is_asked_to_stop_has_ended(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job, _ = started(services, scheduler, **elastic(resources={"instance_count": 1}))
    clock.advance(PAUSE_S)
    rounds(scheduler)
    assert attempt_of(services, job).order_reason == "resized"
    ends(services, executor, job)
    assert again(services, job).status is Status.COMPLETED


def test_a_node_that_is_lost_while_the_job_grows_is_left_out(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    has_nodes(services, 3)
    job, attempt = started(services, scheduler, **elastic(resources={"instance_count": 2}))
    clock.advance(PAUSE_S)
    rounds(scheduler)
    worker_reports.lose(services, attempt.id, 0)
    others_end(services, executor, attempt, "resized", without=(0,))
    assert runs(services, scheduler, job).node_count == 2
    assert "goes on with 2 nodes: node 0 was lost" in notices(services, job)


@pytest.mark.parametrize("when", ["stopping", "queued"])
def test_a_job_is_canceled_while_it_changes(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock, when: str
) -> None:
    job, attempt = started(services, scheduler, **elastic(resources={"instance_count": 2}))
    clock.advance(PAUSE_S)
    rounds(scheduler)
    assert attempt_of(services, job).order_reason == "resized"
    if when == "stopping":
        actions.cancel(services, WORKSPACE, job.name)
        assert again(services, job).status is Status.CANCEL_REQUESTED
        others_end(services, executor, attempt, "canceled")
    else:
        others_end(services, executor, attempt, "resized")
        assert again(services, job).status is Status.QUEUED
        actions.cancel(services, WORKSPACE, job.name)
    rounds(scheduler)
    assert again(services, job).status is Status.CANCELED
    assert sizes_of(services, job) == [2]
    # Its nodes are free again.
    assert started(services, scheduler, **elastic())[1].node_count == 4


@pytest.mark.parametrize("when", ["before the loss is stored", "after it"])
def test_a_server_that_is_killed_while_a_job_shrinks_goes_on(
    services: Services,
    scheduler: Scheduler,
    executor: FakeExecutor,
    when: str,
) -> None:
    computes_of_two(services)
    job, attempt = started(services, scheduler, **elastic(maximum=2))
    if when == "after it":
        worker_reports.lose(services, attempt.id, 1)
    # Another server has the same tables, and nothing of what this one remembers.
    successor = Scheduler(services, executor, "http://127.0.0.1:1")
    if when != "after it":
        worker_reports.lose(services, attempt.id, 1)
    others_end(services, executor, attempt, "stopped", without=(1,))
    second = runs(services, successor, job)
    assert (second.number, second.node_count) == (2, 1)
    assert notices(services, job).count("goes on with 1 node: node 1 was lost") == 1


def test_a_loss_takes_no_try_of_a_retry_policy(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    document = elastic()
    document["torchyard"]["retry"] = {"max_attempts": 2, "backoff_s": 0}
    job, attempt = started(services, scheduler, **document)
    loses(services, executor, attempt, 1)
    second = runs(services, scheduler, job)
    Worker(services, second, 0, seq=1).tell(
        "node_exited", exit_code=1, error={"code": "exception", "message": "rank 0 failed"}
    )
    others_end(services, executor, second, "stopped", without=(0,))
    assert again(services, job).status is Status.QUEUED
    third = runs(services, scheduler, job)
    Worker(services, third, 0, seq=1).tell(
        "node_exited", exit_code=1, error={"code": "exception", "message": "rank 0 failed"}
    )
    others_end(services, executor, third, "stopped", without=(0,))
    failed = again(services, job)
    assert failed.status is Status.FAILED
    assert failed.error is not None and failed.error.code == "exception"


def test_losses_without_progress_end_the_job(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job = submit(services, **elastic())
    for _ in range(3):
        assert again(services, job).status is not Status.FAILED
        loses(services, executor, runs(services, scheduler, job), 0)
    failed = again(services, job)
    assert failed.status is Status.FAILED
    assert failed.error is not None and failed.error.code == "worker_lost"
    assert any("3 attempts in a row lost nodes" in notice for notice in notices(services, job))


def test_a_new_checkpoint_is_progress(
    services: Services, scheduler: Scheduler, executor: FakeExecutor, clock: FakeClock
) -> None:
    job = submit(services, **elastic())
    for _ in range(5):
        attempt = runs(services, scheduler, job)
        clock.advance(10)
        now_ms = int(clock.now().timestamp() * 1000)
        with services.db.write() as connection:
            rewinds.add(connection, job.id, rewinds.Rewind(1, now_ms - 1, now_ms))
        loses(services, executor, attempt, 0)
        assert again(services, job).status is Status.QUEUED


BEGAN = datetime(2024, 1, 1, tzinfo=timezone.utc)


Length = tuple[datetime, datetime, bool]


def tries(*lengths_s: float, losses: str = "") -> list[Length]:
    """One after the other; `losses` has an `x` for each that was lost, all of them if empty."""
    made, began = [], BEGAN
    for number, length_s in enumerate(lengths_s):
        ended = began + timedelta(seconds=length_s)
        made.append((began, ended, not losses or losses[number] == "x"))
        began = ended
    return made


@pytest.mark.parametrize(
    ("before", "loaded_s", "expected"),
    [
        (tries(5, 5), None, False),
        (tries(5, 5, 5), None, True),
        (tries(5, 5, 5, losses="x-x"), None, False),
        (tries(900, 5, 5), None, False),
        (tries(900, 5, 5, 5), None, True),
        (tries(5, 5, 5), 6, False),
        (tries(5, 5, 5), -1, True),
        (tries(5, 5, 5, 5), 4, True),
    ],
)
def test_progress_is_a_checkpoint_or_a_long_run(
    before: list[Length], loaded_s: float | None, expected: bool
) -> None:
    loaded_at_ms = None
    if loaded_s is not None:
        loaded_at_ms = int((BEGAN.timestamp() + loaded_s) * 1000)
    made = [
        Try(is_loss, losses.has_trained(began, ended, loaded_at_ms))
        for began, ended, is_loss in before
    ]
    assert losses.is_stuck(made) is expected


def test_an_ordinary_job_that_loses_a_node_fails(
    services: Services, scheduler: Scheduler, executor: FakeExecutor
) -> None:
    job, attempt = started(services, scheduler, compute="machines", resources={"instance_count": 2})
    loses(services, executor, attempt, 1)
    assert again(services, job).status is Status.FAILED


def says(lab: Lab, machines: tuple[EngineNode, ...]) -> None:
    """The engine does, and is asked now."""
    lab.engine.cluster = EngineCluster("slurm", "24", machines, most_nodes=3)
    settings = computes.get(lab.services.db, WORKSPACE, "lab").settings
    lab.services.engines.describe("slurm", settings)


def test_machines_of_an_engine_are_named(services: Services, clock: FakeClock) -> None:
    lab = Lab(services)
    busy = (EngineNode("a", state="running"), EngineNode("b", state="down"))
    says(lab, (*busy, EngineNode("c")))
    sizes = {"min_nodes": 1, "max_nodes": 3, "grow_after": f"{PAUSE_S}s"}
    job = lab.submit(torchyard=sizes)
    (attempt,) = lab.attempts(job)
    assert attempt.node_count == 1
    lab.engine.give_machines(attempt.id)
    lab.rounds()
    lab.worker(job).tell("node_started", hostname="c", pid=1, addresses=[])
    Worker(lab.services, attempt, 0, seq=1).tell("ranks_started", ranks=[])
    saves(lab.services, job)
    clock.advance(PAUSE_S)
    says(lab, busy)
    lab.rounds()
    assert lab.attempts(job)[-1].order == "", "none of its machines is free"
    says(lab, (*busy, EngineNode("d")))
    lab.rounds()
    assert lab.attempts(job)[-1].order_reason == "resized"
    error = {"code": "resized", "message": "node 0 was stopped"}
    Worker(lab.services, attempt, 0, seq=2).tell("node_exited", exit_code=143, error=error)
    lab.engine.finish(attempt.id)
    lab.rounds(3)
    assert lab.attempts(job)[-1].node_count == 2
    assert "goes on with 2 nodes: machine `d` is free" in lab.notices(job)


def test_machines_that_came_back_a_moment_ago_are_used(services: Services) -> None:
    lab = Lab(services)
    machines = (EngineNode("a"), EngineNode("b", state="down"))
    says(lab, machines)
    lab.engine.cluster = replace(lab.engine.cluster, nodes=(EngineNode("a"), EngineNode("b")))
    sizes = {"min_nodes": 1, "max_nodes": 2}
    job = lab.submit(torchyard=sizes, resources={"instance_count": 2})
    assert lab.attempts(job)[0].node_count == 2


def test_machines_that_became_free_while_it_was_prepared_are_used(services: Services) -> None:
    lab = Lab(services)
    busy = (EngineNode("a"), EngineNode("b", state="running"), EngineNode("c", state="running"))
    says(lab, busy)
    sizes = {"min_nodes": 1, "max_nodes": 3}
    job = submit(lab.services, compute="lab", torchyard=sizes, resources={"instance_count": 3})
    lab.engine.cluster = replace(lab.engine.cluster, nodes=tuple(map(EngineNode, "abc")))
    lab.rounds()
    assert lab.attempts(job)[0].node_count == 3
