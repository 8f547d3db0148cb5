"""Filters that few jobs fit find what going through all jobs finds, in the same order."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select

from jobs import support
from jobs.support import WORKSPACE
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.jobs.history import history_store
from torchyard.jobs.records import dataset_inputs, store, tag_store
from torchyard.jobs.records.dataset_inputs import DatasetInput
from torchyard.jobs.records.types import NewJob, Status
from torchyard.jobs.requests import job_search, runs
from torchyard.jobs.requests.job_search import JobFilter, JobOrder
from torchyard.jobs.requests.run_search import Condition, Order, Question, View
from torchyard.jobs.services import Services

RUNS = 60
FILTERS = 100
ALL = -1
LONG = "x" * 70
# Alike in as much as an index holds, by case, as patterns; a character that JSON escapes.
TEXTS = ("a", "A", "ab", "a%b", "a_b", "ab\\c", "", "ü☃", "\ud7ff", LONG, LONG + "y", "\U0010ffff")
PATTERNS = ("a%", "a_%", "%b", "ab", "A%", LONG + "%", "x%y", "ü%", "\ud7ff%", "\U0010ffff%", "%")
KEYS = ("lr", "ü \\b", "mlflow.user", "k" * 250)
IMPLIED = {"mlflow.runName": "run_name", "mlflow.user": "user_id", "mlflow.parentRunId": "parent"}
IMPLIED |= {"mlflow.source.type": "'JOB'"}
NUMBERS = (-1.0, 0.25, 0.5, float("inf"))
ORDERS = ((), (Order("metric", "lr", True),), (Order("param", "lr", False),))


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    return support.make_services(tmp_path, db, clock)


def some_tags(chance: random.Random) -> dict[str, str]:
    keys = chance.sample([*KEYS, *IMPLIED], chance.randrange(4))
    return {key: chance.choice([*TEXTS, "run 1"]) for key in keys}


def new_run(services: Services, chance: random.Random, number: int, position: int) -> NewJob:
    now = services.clock.now()
    milliseconds = chance.randrange(40)
    return NewJob(
        WORKSPACE,
        f"run-{number:02}",
        "run",
        position,
        chance.choice([Status.RUNNING, Status.COMPLETED, Status.FAILED]),
        chance.choice(["me", "ada", "a_b"]),
        chance.choice([*TEXTS, f"run {number}"]),
        {},
        now + timedelta(seconds=number),
        started_at=chance.choice([None, now + timedelta(milliseconds=milliseconds)]),
        tags=some_tags(chance),
        parent=chance.choice(["", "", "run-01", "a"]),
    )


def fill(services: Services, chance: random.Random) -> list[int]:
    """Runs in two experiments, with values of every kind; their numbers."""
    ids = [runs.create_experiment(services, WORKSPACE, name, {}).id for name in "ab"]
    with services.db.write() as connection:
        new = [new_run(services, chance, number, chance.choice(ids)) for number in range(RUNS)]
        added = [store.add_job(connection, run) for run in new]
        for job in added:
            log(connection, chance, job.id)
            if chance.random() < 0.3:
                store.merge_tags(connection, job.id, some_tags(chance))
            if chance.random() < 0.3:
                store.change_job(connection, job.id, tags=some_tags(chance))
            store.change_job(connection, job.id, deleted=chance.random() < 0.2)
        store.drop_job(connection, added[0].id)
    return ids


def log(connection: Connection, chance: random.Random, job_id: int) -> None:
    row = {"job_id": job_id, "points": 1, "blocks": 0, "tail": b"", "latest_step": 0}
    row |= {"latest_timestamp": 0, "max_step": 0, "max_timestamp": 0}
    for key in chance.sample(KEYS, chance.randrange(3)):
        value = chance.choice([None, *NUMBERS])  # None is a NaN
        connection.execute(
            insert(history_store.metrics), {**row, "key": key, "latest_value": value}
        )
    params = {key: chance.choice(TEXTS) for key in chance.sample(KEYS, chance.randrange(3))}
    history_store.add_params(connection, job_id, params)
    inputs = [DatasetInput(chance.choice(TEXTS), digest) for digest in "12"[: chance.randrange(3)]]
    dataset_inputs.add(connection, job_id, inputs)


def new_condition(services: Services, chance: random.Random) -> Condition:
    kind = chance.choice(["metric", "param", "tag", "attribute", "dataset"])
    if kind == "metric":
        operator = chance.choice(["=", "!=", "<", "<=", ">", ">="])
        return Condition(kind, chance.choice([*KEYS, "none"]), operator, chance.choice(NUMBERS))
    if kind == "attribute" and chance.random() < 0.3:
        moment = (services.clock.now()).timestamp() * 1000 + chance.randrange(-5, 45)
        operator = chance.choice(["=", "!=", "<", "<=", ">", ">="])
        key = chance.choice(["start_time", "end_time"])
        return Condition(kind, key, operator, chance.choice([moment, float("inf"), -1e300]))
    operators = ["=", "!=", "LIKE", "ILIKE", "IN", "NOT IN"]
    keys: Mapping[str, Any] = {
        "param": [*KEYS, "none"],
        "tag": [*KEYS, *IMPLIED, "none"],
        "attribute": ["run_id", "run_name", "user_id", "status", "artifact_uri", "parent"],
        "dataset": ["name", "digest", "context"],
    }
    if kind in ("param", "tag"):
        operators += ["IS NULL", "IS NOT NULL"]
    operator = chance.choice(operators)
    texts = [*TEXTS, "run-01", "run-02", "run 1", "ada", "me", "Failed", "Running", "1", "JOB"]
    value: Any = chance.choice(texts)
    if "LIKE" in operator:
        value = chance.choice([*PATTERNS, "run%", "run-0_", "Fail%", "a_b"])
    elif "IN" in operator:
        value = tuple(chance.sample(texts, chance.randrange(4)))
    elif "NULL" in operator:
        value = None
    return Condition(kind, chance.choice(keys[kind]), operator, value)


def test_a_search_of_few_finds_what_a_walk_through_all_finds(services: Services) -> None:
    chance = random.Random(0)
    ids = fill(services, chance)
    quick, full = 0, 0
    with services.db.read() as connection:
        for _ in range(FILTERS):
            conditions = [new_condition(services, chance) for _ in range(chance.choice([1, 1, 2]))]
            view = View(
                conditions,
                chance.choice(ORDERS),
                chance.choice([None, False, True]),
                chance.choice([0, 0, 2]),
                chance.choice([None, 1, 5, 50]),
            )
            chosen_ids = chance.choice([ids, ids, ids[:1], []])
            question = Question(
                connection, chosen_ids, view, IMPLIED, few=chance.choice([3, 20, RUNS])
            )
            walked, tested = question.ids(), question.ids_of_few()
            assert replace(question, few=ALL).ids_of_few() is None
            assert tested in (None, walked), view
            quick += tested is not None
            full += bool(tested)
    assert quick > FILTERS / 3 and full > 8


def test_every_beginning_and_every_moment_is_looked_up(services: Services) -> None:
    ids = fill(services, random.Random(1))
    now = int(services.clock.now().timestamp() * 1000)
    keys = (("param", "lr"), ("tag", "lr"), ("attribute", "run_name"), ("dataset", "name"))
    conditions = [Condition(*key, "LIKE", pattern) for key in keys for pattern in PATTERNS]
    conditions += [
        Condition("attribute", "start_time", operator, float(now + milliseconds))
        for operator in ("=", "<", "<=", ">", ">=")
        for milliseconds in range(0, 40, 6)
    ]
    full = 0
    with services.db.read() as connection:
        for condition in conditions:
            question = Question(connection, ids, View([condition], (), False), IMPLIED, few=RUNS)
            walked, tested = question.ids(), question.ids_of_few()
            assert tested in (None, walked), condition
            full += bool(tested)
    assert full > len(conditions) / 2


def test_a_search_of_what_few_have_together_finds_what_a_walk_finds(services: Services) -> None:
    chance = random.Random(5)
    ids = fill(services, chance)
    joined, full = 0, 0
    with services.db.read() as connection:
        for _ in range(FILTERS):
            kinds = chance.sample(["metric", "param", "tag"], 2)
            keys = (chance.choice(KEYS) for _ in kinds)
            conditions = [
                Condition(kind, key, *((">", 0.3) if kind == "metric" else ("!=", "a")))
                for kind, key in zip(kinds, keys, strict=True)
            ]
            deleted, limit = chance.choice([None, False, False]), chance.choice([5, 20])
            view = View(conditions, (), deleted, chance.choice([0, 2]), limit)
            chosen_ids = chance.choice([ids, ids[:1], ids[:1]])
            question = Question(connection, chosen_ids, view, IMPLIED, few=30, newest=6)
            walked, joint = question.ids(), question.ids_of_joint()
            assert joint in (None, walked), view
            joined += joint is not None
            full += bool(joint)
    assert joined > 15 and full > 3


@pytest.mark.slow
def test_a_list_of_few_jobs_is_what_a_walk_through_all_finds(services: Services) -> None:
    chance = random.Random(3)
    ids = fill(services, chance)
    full = 0
    with services.db.read() as connection:
        for _ in range(FILTERS):
            moments = [services.clock.now() + timedelta(seconds=number) for number in (5, 30, 55)]
            tags = {chance.choice(KEYS): chance.choice([None, *TEXTS])}
            job_filter = JobFilter(
                WORKSPACE,
                chance.choice([None, ids[0]]),
                chance.choice([None, None, Status.FAILED]),
                None,
                chance.choice(["", "", "run-01", "a"]),
                chance.choice([None, None, tags]),
                chance.choice(["", "", "ada", "none"]),
                "",
                chance.choice([None, None, *moments]),
                chance.choice([None, None, *moments]),
            )
            order = chance.choice([None, JobOrder("metrics", "lr"), JobOrder("tags", "lr", True)])
            lists = [
                job_search.find_page(connection, job_filter, order, None, 7, few)
                for few in (ALL, chance.choice([3, 20, RUNS]))
            ]
            assert lists[0] == lists[1], (job_filter, order)
            full += bool(lists[0].jobs)
    assert full > FILTERS / 5


def test_jobs_are_found_by_the_tags_that_they_have(services: Services) -> None:
    fill(services, random.Random(7))
    with services.db.read() as connection:
        tags_by_job = connection.execute(select(store.jobs.c.id, store.jobs.c.tags)).all()
        rows = [dict(row._mapping) for row in connection.execute(select(tag_store.job_tags))]
    expected = [row for job_id, tags in tags_by_job for row in tag_store.rows_of(job_id, tags)]
    assert len(rows) > RUNS / 2
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))
