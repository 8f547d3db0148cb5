"""The walk through the tables agrees with the pure decision on the whole queue."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from jobs import support
from jobs.support import WORKSPACE, again, submit
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.compute import actions as computes
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.admission import machine, queue, queue_store, shares
from torchyard.jobs.admission.queue import Waiting
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.types import Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.scheduling.queue_walk import Walk
from torchyard.jobs.services import Services

PRIORITIES = ("low", "medium", "high")
CLUSTERS = {"local": "dedicated", "other": "dedicated", "spare": "low_priority"}


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    made = support.make_services(tmp_path, db, clock)
    for name, tier in CLUSTERS.items():
        if name != "local":
            add_cluster(made, name, 5, tier)
    return made


def add_cluster(services: Services, name: str, maximum: int, tier: str = "dedicated") -> None:
    document = {"name": name, "max_instances": maximum, "tier": tier}
    computes.create(services.db, services.clock, WORKSPACE, document, home=services.home)


def queued(services: Services, job: Any) -> None:
    """Queue a job as if its environment were built."""
    with services.db.write() as connection:
        store.change_job(connection, job.id, status=Status.QUEUED.value)


def random_job(services: Services, chance: random.Random) -> None:
    settings = {"priority": chance.choice(PRIORITIES)}
    if chance.random() < 0.2:
        settings["job_tier"] = "spot"
    job = submit(
        services,
        compute=chance.choice(list(CLUSTERS)),
        resources={"instance_count": chance.choice([1, 1, 2, 3, 4])},
        queue_settings=settings,
        **(
            {"limits": {"timeout": chance.choice([60, 600, 6000])}} if chance.random() < 0.6 else {}
        ),
    )
    queued(services, job)


def decide_at_once(services: Services) -> queue.Decision:
    """The decision of `queue.decide` on the tables as they are."""
    now = services.clock.now()
    with services.db.read() as connection:
        every = shares.read(connection, machine.bounds(services))
        running_jobs = queue_store.list_running(connection)
        rows: Sequence[Any] = connection.execute(
            sa.select(store.jobs).where(store.jobs.c.status == Status.QUEUED.value)
        ).all()
    waiting = [
        Waiting(
            row.id,
            f"{row.workspace}/{row.compute}",
            every.needs(row),
            row.priority_rank,
            row.limit_s or 0.0,
            every.is_low((row.workspace, row.compute), row.priority_rank),
        )
        for row in rows
        if row.retry_at is None or row.retry_at <= now
    ]
    running = [every.running(attempt, now.timestamp()) for attempt in running_jobs]
    return queue.decide(waiting, every.capacity, running)


def walked(services: Services, read_ahead: int = 50) -> tuple[list[int], set[int]]:
    walk = Walk(services.db, services.clock.now(), machine.bounds(services), read_ahead)
    starts = []
    while (job := walk.next()) is not None:
        starts.append(job.id)
        walk.started(job)
    return starts, set(walk.heads)


@pytest.mark.parametrize("seed", range(12))
def test_a_walk_starts_the_jobs_that_a_decision_on_the_whole_queue_starts(
    services: Services, clock: FakeClock, seed: int
) -> None:
    chance = random.Random(seed)
    object.__setattr__(services, "machine", {"nodes": 9} if seed % 2 else {})
    executor = FakeExecutor()
    scheduler = Scheduler(services, executor, "http://127.0.0.1:1")
    for _ in range(4):
        for _ in range(chance.randint(1, 6)):
            random_job(services, chance)
        decision = decide_at_once(services)
        for read_ahead in (1, 2, 50):
            assert walked(services, read_ahead) == (
                [job.id for job in decision.starts],
                {h.job.id for h in decision.heads},
            )
        scheduler.claimer.claim()
        # A round that took long on a slow machine continues in the next.
        while services.wakeup.is_set():
            services.wakeup.clear()
            scheduler.claimer.claim()
        assert decide_at_once(services).starts == (), "nothing idles while a job that may run fits"
        with services.db.read() as connection:
            going = queue_store.list_running(connection)
        for attempt in going:
            if attempt.order_reason or chance.random() < 0.4:
                end(services, attempt.job_name)
        clock.advance(chance.choice([1, 100, 1000]))


def end(services: Services, name: str) -> None:
    with services.db.read() as connection:
        job = store.job_named(connection, WORKSPACE, name)
        assert job is not None
        attempt = attempt_store.attempts_of(connection, job.id)[-1]
    for node in range(attempt.node_count):
        support.Worker(services, attempt, node).whole_life()


def test_priorities_decide_at_a_cluster(services: Services) -> None:
    chosen = []
    for priority in PRIORITIES:
        job = submit(
            services, queue_settings={"priority": priority}, resources={"instance_count": 4}
        )
        queued(services, job)
        chosen.append(job)
    scheduler = Scheduler(services, FakeExecutor(), "http://127.0.0.1:1")
    scheduler.claimer.claim()
    assert [again(services, job).status.value for job in chosen] == ["Queued", "Queued", "Starting"]


def test_a_paused_job_delays_nobody(services: Services, clock: FakeClock) -> None:
    paused, other = submit(services, resources={"instance_count": 4}), submit(services)
    for job in (paused, other):
        queued(services, job)
    with services.db.write() as connection:
        store.change_job(connection, paused.id, retry_at=clock.now() + timedelta(seconds=30))
    assert walked(services)[0] == [other.id]
    clock.advance(31)
    assert walked(services)[0] == [paused.id]


def test_a_machine_limit_holds_across_clusters(services: Services) -> None:
    object.__setattr__(services, "machine", {"nodes": 3})
    first, second = (
        submit(services, resources={"instance_count": 2}),
        submit(services, compute="other", resources={"instance_count": 2}),
    )
    for job in (first, second):
        queued(services, job)
    Scheduler(services, FakeExecutor(), "http://127.0.0.1:1").claimer.claim()
    assert again(services, first).status is Status.STARTING
    assert again(services, second).status is Status.QUEUED


@pytest.mark.parametrize("read_ahead", [1, 3, 50])
def test_a_held_back_owners_jobs_are_passed_over_also_when_they_were_read_already(
    services: Services, read_ahead: int
) -> None:
    owners = ["ada", "bob", "ada", "cleo", "bob", "ada"]
    jobs = [submit(services) for _ in owners]
    with services.db.write() as connection:
        for job, owner in zip(jobs, owners, strict=True):
            store.change_job(connection, job.id, status=Status.QUEUED.value, owner=owner)
    add_cluster(services, "large", 9)
    walk = Walk(services.db, services.clock.now(), {}, read_ahead)
    walk.free = {name: 9 for name in walk.free}
    starts = []
    while (candidate := walk.next()) is not None:
        if candidate.owner == "ada":
            walk.held_back(candidate)
        else:
            starts.append(candidate.id)
            walk.started(candidate)
    assert starts == [jobs[1].id, jobs[3].id, jobs[4].id]
