"""Jobs are found by a part of their texts, in the index or not yet, renamed or not."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select

from jobs import support
from jobs.support import WORKSPACE
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.jobs.records import experiment_store, store, text_index
from torchyard.jobs.records.renames import job_renames
from torchyard.jobs.records.text_index import TextIndex, job_letters
from torchyard.jobs.records.types import NewJob, Status
from torchyard.jobs.requests import job_search, runs
from torchyard.jobs.requests.job_search import JobFilter
from torchyard.jobs.requests.run_search import Condition, Question, View
from torchyard.jobs.services import Services

JOBS = 40
WORDS = (
    "Base",
    "line",
    "ölig",
    "İstanbul",
    "100%",
    "a_b",
    "x\\y",
    "",
    "lr 0.1",
    "\u212aelvin",
    "'",
    "☃☃☃",
)
PATTERNS = ("%ase%", "%LINE%", "%lr 0.1%", "%a_b%", "%0\\%%", "%x\\y%", "%stan%el%", "%☃☃☃%",
            "_ase%", "%", "%ab", "%no such%", "%job-1%", "%elv%", "%ölig%")  # fmt: skip


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    return support.make_services(tmp_path, db, clock)


class Waited:
    """A monotonic clock on which a minute passes whenever it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 61.0
        return self.now_s


def an_index(services: Services) -> TextIndex:
    return TextIndex(services.db, Waited(), least_new=10, least_renamed=3, batch=15)


def extended(index: TextIndex) -> int:
    """How many batches were due; the first time PostgreSQL only notes how far there are jobs."""
    index.is_due()
    batches = 0
    while index.is_due():
        index.extend()
        batches += 1
    return batches


def fill(services: Services, chance: random.Random, first: int = 0) -> list[int]:
    experiment = runs.create_experiment(services, WORKSPACE, f"of {first}", {})
    with services.db.write() as connection:
        return [
            store.add_job(
                connection,
                NewJob(
                    WORKSPACE,
                    f"job-{number:03}",
                    "run",
                    experiment.id,
                    Status.COMPLETED,
                    "me",
                    some_text(chance),
                    {},
                    services.clock.now(),
                    description=some_text(chance),
                ),
            ).id
            for number in range(first, first + JOBS)
        ]


def some_text(chance: random.Random) -> str:
    return chance.choice(["", " "]).join(chance.sample(WORDS, 2))


def rename_some(services: Services, chance: random.Random, ids: list[int]) -> None:
    with services.db.write() as connection:
        for job_id in chance.sample(ids, 5):
            store.change_job(connection, job_id, display_name=some_text(chance))
        for job_id in chance.sample(ids, 5):
            store.change_job(connection, job_id, description=some_text(chance))
        store.merge_tags(connection, ids[0], {"mlflow.runName": "by MLflow's client"})


def check(services: Services) -> int:
    """Few, tested one by one, are those of a walk through all; how often there were some."""
    full = 0
    with services.db.read() as connection:
        for text in (*WORDS, "BASE", "ase", "Kelvin", "by mlflow's", "none of them"):
            job_filter = JobFilter(WORKSPACE, text=text)
            walked, few = (
                job_search.find_page(connection, job_filter, None, None, JOBS * 3, limit).jobs
                for limit in (-1, JOBS * 3)
            )
            assert [job.id for job in few] == [job.id for job in walked], text
            full += bool(few)
        ids = list(connection.execute(select(experiment_store.experiments.c.id)).scalars())
        for pattern in PATTERNS:
            for operator in ("LIKE", "ILIKE"):
                condition = Condition("attribute", "run_name", operator, pattern)
                view = View([condition], (), False)
                question = Question(connection, ids, view, {}, few=JOBS * 3)
                assert question.ids_of_few() in (None, question.ids()), (pattern, operator)
                assert replace(question, few=-1).ids_of_few() is None
                full += bool(question.ids_of_few())
    return full


@pytest.mark.slow
def test_what_the_index_finds_is_what_a_walk_finds(services: Services) -> None:
    chance, index = random.Random(0), an_index(services)
    ids = fill(services, chance)
    assert check(services) > 15
    assert extended(index) == 3
    assert check(services) > 15
    ids += fill(services, chance, JOBS)
    rename_some(services, chance, ids)
    assert check(services) > 15
    assert extended(index) > 2
    assert check(services) > 15
    with services.db.write() as connection:
        store.drop_job(connection, ids[0])
        store.drop_job(connection, ids[-1])
    assert check(services) > 15


def test_the_index_has_all_jobs_but_the_last_few(services: Services) -> None:
    ids = fill(services, random.Random(1))
    assert extended(an_index(services)) == 3
    with services.db.read() as connection:
        everything = text_index.candidates(connection, ["job-"], JOBS)
        assert everything is not None
        indexed, new, renamed = (list(connection.execute(each).scalars()) for each in everything)
        assert (indexed, new, renamed) == (ids, [], [])
        assert text_index.candidates(connection, ["job-"], JOBS - 1) is None
        assert text_index.candidates(connection, ["jo", "☃"], JOBS) is None
        alone = text_index.candidates(connection, ["job-", "007"], JOBS)
        assert alone is not None
        assert list(connection.execute(alone[0]).scalars()) == [ids[7]]


def test_a_few_new_jobs_wait_for_more_and_are_found(services: Services) -> None:
    fill(services, random.Random(2))
    index = TextIndex(services.db, Waited(), least_new=JOBS + 1)
    assert extended(index) == 0
    with services.db.read() as connection:
        assert connection.execute(select(func.count()).select_from(job_letters)).scalar() == 0
    assert check(services) > 15


def test_renamed_jobs_are_taken_once(services: Services) -> None:
    ids = fill(services, random.Random(3))
    index = an_index(services)
    extended(index)
    with services.db.write() as connection:
        for _ in range(3):
            store.change_job(connection, ids[5], display_name="quite another")
    assert extended(index) == 1
    with services.db.read() as connection:
        assert connection.execute(select(func.count()).select_from(job_renames)).scalar() == 0
        candidates = text_index.candidates(connection, ["another"], JOBS)
        assert candidates is not None
        assert list(connection.execute(candidates[0]).scalars()) == [ids[5]]


def test_two_servers_extend_it_together(services: Services) -> None:
    fill(services, random.Random(4))
    indexes = [an_index(services) for _ in range(2)]
    for _ in range(8):
        for index in indexes:
            if index.is_due():
                index.extend()
    assert not any(index.is_due() for index in indexes)
    assert check(services) > 15


def test_postgresql_shows_a_job_late(services: Services) -> None:
    """One with a lower number may be committed after one with a higher."""
    fill(services, random.Random(5))
    now = [0.0]
    index = TextIndex(services.db, lambda: now[0], least_new=10)
    # SQLite has one writer at a time.
    is_sqlite = services.db.engine.dialect.name == "sqlite"
    assert index.is_due() == is_sqlite
    if is_sqlite:
        return
    now[0] = 59.0
    assert not index.is_due()
    now[0] = 61.0
    assert index.is_due()
