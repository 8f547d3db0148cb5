"""Points without a step are numbered by the moment at which they were logged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from postgres_server import NewDatabase
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.jobs.history import chart_store, exact_points, stepless_points
from torchyard.jobs.history.chart_store import Window
from torchyard.jobs.history.history import History, Received
from torchyard.jobs.history.history_records import Metric, metric, without_step
from torchyard.jobs.history.metric_blocks import Point

START_US = 1_790_000_000_000_000


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Database]:
    folder: Path = tmp_path_factory.mktemp("arrival")
    made = Database(new_database(folder))
    made.upgrade()
    yield made
    made.close()


@pytest.fixture
def history(db: Database) -> Iterator[History]:
    made = History(db, FakeClock())
    yield made
    for job_id in (1, 2):
        made.delete(job_id)


def points(count: int, every_us: int = 10, start: int = 0) -> list[Metric]:
    """The value is the place that a point must get."""
    return [
        without_step("loss", float(index), START_US + index * every_us)
        for index in range(start, start + count)
    ]


def record(point: Metric, moment_us: int) -> dict[str, object]:
    body = {"kind": "metric", "run": "r", "key": point.key, "value": point.value}
    return {**body, "moment_us": moment_us, "step": None}


def seen(history: History, job_id: int = 1) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in history.series(job_id, "loss")]


def in_order(count: int) -> list[tuple[int, float]]:
    return [(index, float(index)) for index in range(count)]


def test_a_hundred_in_a_millisecond_keep_their_order_however_they_come(history: History) -> None:
    logged = points(900)
    shuffled = random.Random(3).sample(logged, len(logged))
    for start in range(0, 900, 45):
        history.append(1, shuffled[start : start + 45])

    assert seen(history) == in_order(900)
    assert history.latest(1) == [Metric("loss", logged[-1].timestamp, 899, 899.0)]


def test_the_same_batch_again_is_stored_once(history: History) -> None:
    logged = points(200)
    history.append(1, logged[:120])
    history.append(1, logged[80:])
    history.append(1, logged)
    assert seen(history) == in_order(200)


def test_every_reader_sees_the_numbers(history: History, db: Database) -> None:
    # A point every 0.1 s for 100 s: the first are settled in blocks, the last 20 s are not.
    logged = points(1000, every_us=100_000)
    for start in range(0, 1000, 100):
        history.append(1, random.Random(start).sample(logged[start : start + 100], 100))

    with db.read() as connection:
        head = chart_store.head(connection, 1, "loss")
        (summary,) = chart_store.summaries(connection, 1)
    assert head is not None and head.blocks > 0
    assert list(head.tail.steps) == [int(value) for value in head.tail.values]
    assert (summary.count, summary.step, summary.value) == (1000, 999, 999.0)
    assert (summary.low, summary.high) == (0.0, 999.0)
    for window, expected in (
        (Window(), range(1000)),
        (Window("step", 500, 990), range(500, 991)),
        (Window("step", 985, None), range(985, 1000)),
    ):
        pieces = exact_points.pieces(db, 1, "loss", window)
        assert [step for some in pieces for step in some.steps] == list(expected)
    assert [point.step for point in history.series(1, "loss", 990, 5)] == list(range(990, 995))


def test_what_was_settled_is_not_stored_again(history: History) -> None:
    logged = points(1000, every_us=100_000)
    history.append(1, logged)
    history.append(1, logged[:300])
    assert seen(history) == in_order(1000)


def test_a_worker_is_believed_that_it_sends_nothing_twice(history: History) -> None:
    logged = points(1000, every_us=100_000)
    records = [record(point, START_US + index * 100_000) for index, point in enumerate(logged)]
    # Another rank's, logged at the same moments and with the same values, long after.
    for node in (0, 1):
        answer = history.receive(lambda _: 2, "attempt", node, 0, records)
        assert answer == Received(1000)
        assert history.receive(lambda _: 2, "attempt", node, 0, records).next == 1000
    numbered = seen(history, 2)
    # What still waited when the second rank's came is the same point: 20 s.
    assert len(numbered) == 2000 - 201
    assert [step for step, _ in numbered] == list(range(len(numbered)))


def test_points_with_and_without_steps_share_a_key(history: History) -> None:
    start_ms = START_US // 1000
    history.append(1, [metric("loss", 7.0, start_ms - 60_000, 3)])
    history.append(1, points(2))
    history.append(1, [metric("loss", 8.0, start_ms + 60_000, 50)])
    history.append(1, points(1, start=2))
    assert seen(history) == [(3, 7.0), (1, 0.0), (2, 1.0), (50, 8.0), (4, 2.0)]
    assert history.latest(1)[0].step == 50


def test_a_clock_that_stands_still_does_not_fill_the_tail() -> None:
    tail: list[Point] = []
    blocks: list[Point] = []
    for start in range(0, 60_000, 30_000):
        steps = [
            stepless_points.step_at(START_US + offset) for offset in range(start, start + 30_000)
        ]
        laid = stepless_points.add(tail, [Point(0, step, 0.0) for step in steps], len(blocks))
        blocks += laid.finished
        tail = laid.tail
    assert len(tail) <= 50_000
    points = blocks + stepless_points.number_tail(tail, len(blocks))
    assert [point.step for point in points] == list(range(60_000))
