"""The quick ways to answer a search find what sorting all runs finds."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert

from jobs import support
from jobs.support import WORKSPACE
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.jobs.history import history_store
from torchyard.jobs.records import store
from torchyard.jobs.requests import runs
from torchyard.jobs.requests.run_search import Condition, Order, Question, View
from torchyard.jobs.services import Services

RUNS = 60


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    return support.make_services(tmp_path, db, clock)


def fill(services: Services, seed: int) -> list[int]:
    """Runs in two experiments, many with the same score, some with NaN and some with none."""
    chance = random.Random(seed)
    ids = [runs.create_experiment(services, WORKSPACE, name, {}).id for name in "ab"]
    for number in range(RUNS):
        started_at = services.clock.now() + timedelta(seconds=chance.randrange(20))
        request = runs.RunRequest(
            WORKSPACE, chance.choice(ids), "me", f"run {number}", started_at, "", {}
        )
        job = runs.create_run(services, request)
        with services.db.write() as connection:
            store.change_job(connection, job.id, deleted=chance.random() < 0.2)
            score = chance.choice([None, 0.25, 0.5, 0.5, 0.75, 1.0])
            row = {"job_id": job.id, "key": "score", "points": 1, "blocks": 0, "tail": b""}
            row |= {"latest_step": 0, "latest_timestamp": 0, "latest_value": score}
            if chance.random() < 0.8:
                connection.execute(
                    insert(history_store.metrics), row | {"max_step": 0, "max_timestamp": 0}
                )
    return ids


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("descending", [True, False])
def test_the_best_runs_by_a_metric_are_those_that_sorting_all_finds(
    services: Services, seed: int, descending: bool
) -> None:
    ids = fill(services, seed)
    orders = (Order("metric", "score", descending), Order("attribute", "run_name", False))
    quick = 0
    for chosen_ids, deleted, offset, limit, more, filtered in itertools.product(
        (ids, ids[:1]), (False, None), (0, 3), (1, 4, 30), (0, 200), (False, True)
    ):
        conditions = (Condition("metric", "score", ">", 0.3),) if filtered else ()
        view = View(conditions, orders, deleted, offset, limit)
        with services.db.read() as connection:
            question = Question(connection, chosen_ids, view, {}, more)
            best, every = question.ids_by_metric(), question.ids()
        assert best in (None, every), view
        quick += best is not None
    assert quick > 20


@pytest.mark.parametrize("seed", range(3))
def test_the_newest_of_several_experiments_are_those_that_sorting_all_finds(
    services: Services, seed: int
) -> None:
    ids = fill(services, seed)
    every = View(deleted=None)
    for deleted, offset, limit in itertools.product((False, None), (0, 5), (1, 7, 100)):
        with services.db.read() as connection:
            expected_ids = Question(connection, ids, replace(every, deleted=deleted), {}).ids()
            view = replace(every, deleted=deleted, offset=offset, limit=limit)
            page = Question(connection, ids, view, {}).ids()
        assert page == expected_ids[offset : offset + limit]
