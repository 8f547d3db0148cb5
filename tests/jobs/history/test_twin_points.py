"""Two clients that log the same values are one line of the chart."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from postgres_server import NewDatabase
from torchyard.base.db import Database
from torchyard.jobs.history import chart_store
from torchyard.jobs.history.history import History
from torchyard.jobs.history.history_records import Metric, metric, read, without_step

START_MS = 1_790_000_000_000
EVERY_MS = 30_000


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Database]:
    folder: Path = tmp_path_factory.mktemp("twins")
    made = Database(new_database(folder))
    made.upgrade()
    yield made
    made.close()


@pytest.fixture
def history(db: Database) -> Iterator[History]:
    made = History(db)
    yield made
    made.delete(1)


def stepped(index: int, value: float, every_ms: int = EVERY_MS) -> Metric:
    """As MLflow logs it."""
    return metric("loss", value, START_MS + index * every_ms, 10 * index + 10)


def stepless(index: int, value: float, every_ms: int = EVERY_MS) -> Metric:
    """As SDK v1 logs it, a little later."""
    return without_step("loss", value, (START_MS + index * every_ms + 7) * 1000)


def with_step(index: int, value: float, every_ms: int = EVERY_MS) -> Metric:
    """As SDK v1 logs it with `step=`."""
    moment_us = (START_MS + index * every_ms + 7) * 1000
    body: dict[str, Any] = {"run": "r", "kind": "metric", "key": "loss", "moment_us": moment_us}
    body["value"] = "Infinity" if value == float("inf") else value
    _, record = read({**body, "step": 10 * index + 10})
    assert isinstance(record, Metric)
    return record


CALLS = {"s": stepped, "w": stepless, "v": with_step}


def seen(history: History) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in history.series(1, "loss")]


def expected(values: Sequence[float]) -> list[tuple[int, float]]:
    return [(10 * index + 10, value) for index, value in enumerate(values)]


VALUES = [2.5, 1.5, 1.5, float("inf"), 0.25]


@pytest.mark.parametrize(
    "calls",
    [
        "s0 w0 s1 w1 s2 w2 s3 w3 s4 w4",
        "w0 s0 w1 s1 w2 s2 w3 s3 w4 s4",
        "s0s1s2s3s4 w0w1w2w3w4",
        "w0w1w2w3w4 s0s1s2s3s4",
        "w0s0w1s1w2 s2s3w3w4s4",
        "s0s1s2 w1w0w2 w3w4 s3 s4",
        # Sent again.
        "s0 w0 s0 w0 s1 w1w0 s2s1 w2 s3 w3w3 s4 w4 w4 s4",
        "s0 v0 s1 v1 s2 v2 s3 v3 s4 v4",
        "v0 s0 v1 s1 v2 s2 v3 s3 v4 s4",
        "s0s1s2s3s4 v0v1v2v3v4",
        "v0v1v2v3v4 s0s1s2s3s4",
        "v0s0v1s1v2 s2s3v3v4s4",
        "v0 s0 v0 s0 s1 v1v0 s2s1 v2 v3 s3 v3v3 s3 v4 s4 v4 s4",
        "v0 v1 v2v3 v4 v4 v0",
    ],
)
def test_the_same_values_by_two_clients_stand_once(history: History, calls: str) -> None:
    for call in calls.split():
        points = [
            CALLS[call[at]](int(call[at + 1]), VALUES[int(call[at + 1])])
            for at in range(0, len(call), 2)
        ]
        history.append(1, points)
    assert seen(history) == expected(VALUES)
    (latest,) = history.latest(1)
    assert (latest.step, latest.value) == (50, 0.25)


@pytest.mark.parametrize("of_sdk_v1", [stepless, with_step])
@pytest.mark.parametrize("seed", range(2))
def test_long_runs_stand_once_whatever_comes_first(
    history: History, seed: int, of_sdk_v1: Callable[[int, float, int], Metric]
) -> None:
    chance = random.Random(seed)
    values = [chance.choice([0.5, 1.0, index / 7]) for index in range(200)]
    for index, value in enumerate(values):
        pair = [stepped(index, value, 500), of_sdk_v1(index, value, 500)]
        chance.shuffle(pair)
        for point in pair:
            history.append(1, [point])
    assert seen(history) == expected(values)
    (latest,) = history.latest(1)
    assert latest.step == 2000 and history.counts([1], "loss") == {1: 200}


def test_steps_that_do_not_grow_leave_the_right_latest_point(history: History) -> None:
    # MLflow without a step: all are at 0.
    for index in range(5):
        history.append(1, [stepless(index, float(index))])
        history.append(1, [metric("loss", float(index), START_MS + index * EVERY_MS, 0)])
    assert seen(history) == [(0, float(index)) for index in range(5)]
    (latest,) = history.latest(1)
    assert (latest.step, latest.value) == (0, 4.0)


def test_other_values_and_other_times_are_points_of_their_own(history: History) -> None:
    history.append(1, [stepped(0, 1.0), stepped(1, 2.0)])
    history.append(1, [stepless(0, 9.0), stepless(2, 2.0)])
    assert [value for _, value in seen(history)] == [1.0, 2.0, 9.0, 2.0]


def test_one_client_may_log_the_same_value_as_often_as_it_likes(history: History) -> None:
    for index in range(200):
        history.append(1, [without_step("loss", 1.0, (START_MS + index * 100) * 1000)])
    assert seen(history) == [(index, 1.0) for index in range(200)]


def test_each_client_may_log_a_value_at_one_step_several_times(history: History) -> None:
    history.append(1, [metric("loss", 1.0, START_MS + k, 5) for k in range(3)])
    history.append(1, [with_step(1, 2.0), with_step(1, 2.0)._replace(timestamp=START_MS)])
    assert seen(history) == [(5, 1.0)] * 3 + [(20, 2.0)] * 2


def test_another_step_value_or_time_is_a_point_of_its_own(history: History) -> None:
    history.append(1, [with_step(0, 1.0), with_step(1, 2.0), with_step(2, 3.0)])
    others = [metric("loss", 1.0, START_MS, 11), metric("loss", 9.0, START_MS + EVERY_MS, 20)]
    history.append(1, [*others, metric("loss", 3.0, START_MS, 30)])
    assert seen(history) == [(10, 1.0), (20, 2.0), (30, 3.0), (11, 1.0), (20, 9.0), (30, 3.0)]


def test_steps_of_sdk_v1_stand_in_charts_and_latest_points_as_they_are(
    history: History, db: Database
) -> None:
    for index in range(300):
        history.append(1, [with_step(index, index / 7, 500)])
    assert seen(history) == expected([index / 7 for index in range(300)])
    (latest,) = history.latest(1)
    assert (latest.step, latest.value) == (3000, 299 / 7)
    with db.read() as connection:
        head = chart_store.head(connection, 1, "loss")
        assert head is not None and head.blocks > 0
        steps = head.tail.steps.tolist()
    assert steps == [10 * index + 10 for index in range(300)][-len(steps) :]
