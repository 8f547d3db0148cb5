"""Run history on a real database."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, func, select
from sqlalchemy.exc import NoResultFound

from jobs.history.job_rows import add_jobs, tags_of
from postgres_server import NewDatabase
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput
from torchyard.jobs.history import history_store
from torchyard.jobs.history.history import History, Received
from torchyard.jobs.history.history_records import Metric, metric, param, tag
from torchyard.jobs.history.metric_blocks import Point
from torchyard.shared import record_rules

TABLES = [
    history_store.metrics,
    history_store.metric_blocks_table,
    history_store.params,
    history_store.history_cursors,
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Database]:
    folder: Path = tmp_path_factory.mktemp("history")
    made = Database(new_database(folder))
    made.upgrade()
    yield made
    made.close()


@pytest.fixture
def history(db: Database) -> History:
    with db.write() as connection:
        for table in TABLES:
            connection.execute(table.delete())
    add_jobs(db, range(1, 521))
    return History(db, FakeClock())


def line(key: str, count: int, start: int = 0) -> list[Metric]:
    return [metric(key, step / 10, 1000 + step, step) for step in range(start, start + count)]


def test_points_come_back_in_order_of_arrival(history: History) -> None:
    logged = line("loss", 700)
    random.Random(1).shuffle(logged)
    for start in range(0, 700, 90):
        history.append(1, logged[start : start + 90])

    assert history.series(1, "loss") == [Point(*record[1:]) for record in logged]
    assert history.series(1, "loss", 640, 30) == history.series(1, "loss")[640:670]
    assert history.series(1, "loss", 130, 1) == history.series(1, "loss")[130:131]
    assert history.series(1, "loss", 699) == history.series(1, "loss")[699:]
    assert history.series(1, "loss", 5000) == []
    assert history.series(2, "loss") == history.series(1, "other") == []


def test_single_posts_and_a_batch_make_the_same(history: History) -> None:
    for record in line("loss", 300):
        history.append(1, [record])
    history.append(2, line("loss", 300))

    assert history.series(1, "loss") == history.series(2, "loss")
    assert history.latest(1) == history.latest(2) == [Metric("loss", 1299, 299, 29.9)]


@pytest.mark.parametrize("size", [1, 7, 127, 128, 129, 512, 513, 1000])
def test_what_is_sent_again_is_stored_once(history: History, size: int) -> None:
    sent = [
        metric("loss", math.nan if step % 5 == 0 else step, 7, step // 2) for step in range(size)
    ]
    history.append(1, sent)
    history.append(1, sent)
    history.append(1, sent[: size // 2] + sent)

    assert history.series(1, "loss") == list(dict.fromkeys(Point(*point[1:]) for point in sent))


def test_an_old_point_sent_again_after_thousands_is_stored_once(history: History) -> None:
    history.append(1, line("loss", 3000))
    history.append(1, line("loss", 10, start=40))
    history.append(1, [metric("loss", 99.0, 1040, 40)])

    assert len(history.series(1, "loss")) == 3001


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b", "ä %/@"]),
                st.integers(0, 3),
                st.integers(-2, 2),
                st.sampled_from([0.0, 1.5, math.nan, math.inf, -math.inf]),
            ),
            max_size=40,
        ),
        max_size=12,
    )
)
def test_history_is_the_distinct_points_in_order(
    history: History, batches: list[list[tuple[str, int, int, float]]]
) -> None:
    history.delete(1)
    expected: dict[str, dict[Point, None]] = {}
    for batch in batches:
        records = [metric(key, value, timestamp, step) for key, timestamp, step, value in batch]
        history.append(1, records)
        for record in records:
            expected.setdefault(record.key, {})[Point(*record[1:])] = None

    assert {key: history.series(1, key) for key in history.keys(1)} == {
        key: list(points) for key, points in expected.items()
    }


def test_the_latest_is_by_step_and_not_by_arrival(history: History) -> None:
    history.append(1, [metric("a", 1.0, 50, 10), metric("a", 2.0, 60, 3), metric("b", math.nan, 1)])
    history.append(1, [metric("a", 3.0, 40, 10)])

    assert history.latest(1)[0] == Metric("a", 50, 10, 1.0)
    assert math.isnan(history.latest(1)[1].value)
    assert history.keys(1) == ["a", "b"]


def test_what_is_no_finite_number_is_kept(history: History) -> None:
    for value in ("NaN", "Infinity", "-Infinity"):
        history.append(1, [metric(value, value, 1)])

    assert history.latest(1)[0].value == -math.inf
    assert history.latest(1)[1].value == math.inf
    assert [record_rules.number_json(metric.value) for metric in history.latest(1)] == [
        "-Infinity",
        "Infinity",
        "NaN",
    ]


def test_a_parameter_keeps_its_value(history: History) -> None:
    history.append(1, [param("lr", "0.1"), param("lr", "0.1"), param("n", "")])
    history.append(1, [param("lr", "0.1")])
    with pytest.raises(InvalidInput, match=r"Changing param values .*'0.1'"):
        history.append(1, [metric("loss", 1, 1), param("lr", "0.2")])

    assert history.params(1) == {"lr": "0.1", "n": ""}
    assert history.keys(1) == [], "of a refused call nothing is stored"


def test_many_runs_are_read_at_once(history: History, db: Database) -> None:
    for job_id in range(1, 520):
        history.append(job_id, [metric("m", job_id, 1), param("p", str(job_id)), tag("t", "v")])

    data = history.data_of(range(1, 523))

    assert len(data) == 522
    assert data[519].metrics[0].value == 519
    assert data[519].params == {"p": "519"}
    assert data[521].metrics == ()
    assert tags_of(db, 5) == {"t": "v"}


def test_deleting_takes_all_of_one_job(history: History, db: Database) -> None:
    history.append(1, [*line("loss", 600), param("a", "b")])
    history.append(2, line("loss", 600))
    history.delete(1)

    assert (history.keys(1), history.params(1), history.series(1, "loss")) == ([], {}, [])
    assert len(history.series(2, "loss")) == 600
    with db.read() as connection:
        table = history_store.metric_blocks_table
        jobs = connection.execute(select(func.min(table.c.job_id), func.max(table.c.job_id))).one()
    assert tuple(jobs) == (2, 2)


# What workers send


def sent(key: str = "loss", value: Any = 1.0, step: int = 0, run: str = "job") -> dict[str, Any]:
    body = {"kind": "metric", "run": run, "key": key, "value": value}
    return {**body, "timestamp": 1000 + step, "step": step}


RUNS = {"job": 1, "child": 2}


def test_repeats_are_dropped_by_their_number(history: History) -> None:
    first = [sent(step=step) for step in range(5)]
    assert history.receive(RUNS.get, "att", 0, 0, first) == Received(5)
    # Another value would be a point of its own: what counts is the number.
    other = sent(step=88)
    assert history.receive(RUNS.get, "att", 0, 0, [other] * 5) == Received(5)
    more = [other, other, sent(step=5), sent(step=6, run="child")]
    assert history.receive(RUNS.get, "att", 0, 3, more) == Received(7)
    assert history.receive(RUNS.get, "att", 1, 0, [sent("other")]) == Received(1)
    assert history.receive(RUNS.get, "att2", 0, 0, [sent(step=9)]) == Received(1)

    assert [point.step for point in history.series(1, "loss")] == [0, 1, 2, 3, 4, 5, 9]
    assert [point.step for point in history.series(2, "loss")] == [6]
    assert history.keys(1) == ["loss", "other"]


def test_a_gap_is_asked_for(history: History) -> None:
    assert history.receive(RUNS.get, "att", 0, 0, [sent()]).next == 1
    assert history.receive(RUNS.get, "att", 0, 3, [sent(step=3)], 0) == Received(1)
    assert history.receive(RUNS.get, "new", 0, 3, [sent(step=3)], 2) == Received(0)
    assert history.keys(1) == ["loss"] and len(history.series(1, "loss")) == 1

    rest = [sent(step=step) for step in range(5)]
    assert history.receive(RUNS.get, "att", 0, 0, rest, 0) == Received(5)
    assert [point.step for point in history.series(1, "loss")] == [0, 1, 2, 3, 4]


def test_a_gap_that_nobody_can_fill_is_told(history: History) -> None:
    history.receive(RUNS.get, "att", 0, 0, [sent()])
    answer = history.receive(RUNS.get, "att", 0, 7, [sent(step=7)], 7)
    assert answer == Received(8, [{"seq": 7, "message": "6 records of node 0 are lost"}])
    assert [point.step for point in history.series(1, "loss")] == [0, 7]


def test_what_was_refused_is_told_again_with_a_repeat(history: History, db: Database) -> None:
    param = {"kind": "param", "run": "job", "key": "lr", "value": "1"}
    tag = {"kind": "tag", "run": "job", "key": "t", "value": "old"}
    records = [param, tag, {**param, "value": "2"}, sent(run="nobody"), sent()]
    first = history.receive(RUNS.get, "att", 0, 0, records)
    assert [rejection["seq"] for rejection in first.rejected] == [2, 3]
    history.receive(RUNS.get, "att", 0, 5, [{**tag, "value": "new"}])

    again = history.receive(RUNS.get, "att", 0, 0, records)
    assert (again.next, again.rejected) == (6, first.rejected)
    assert (history.params(1), tags_of(db, 1)) == ({"lr": "1"}, {"t": "new"})
    assert len(history.series(1, "loss")) == 1


BAD: list[Any] = [
    None,
    7,
    {},
    sent(run="nobody"),
    {**sent(), "run": None},
    {**sent(), "run": ["job"]},
    {**sent(), "kind": "image"},
    {**sent(), "key": None},
    {**sent(), "key": ""},
    {**sent(), "key": "k" * 251},
    {**sent(), "key": "half \ud800"},
    {**sent(), "key": "nul \0"},
    {**sent(), "run": "half \ud800"},
    {**sent(), "value": None},
    {**sent(), "value": True},
    {**sent(), "value": "1.5"},
    {**sent(), "value": 10**400},
    {**sent(), "timestamp": "1"},
    {**sent(), "timestamp": 2**63},
    {**sent(), "step": 1.0},
    {"kind": "param", "run": "job", "key": "p", "value": 3},
    {"kind": "param", "run": "job", "key": "p", "value": "\ud800"},
    {"kind": "tag", "run": "job", "key": "t", "value": None},
    {"kind": "param", "run": "job", "key": "kept", "value": "changed"},
]


def test_one_bad_record_holds_up_none(history: History, db: Database) -> None:
    history.receive(
        RUNS.get, "att", 0, 0, [{"kind": "param", "run": "job", "key": "kept", "value": "first"}]
    )
    good = [sent(f"key{number}") for number in range(len(BAD))]
    mixed = [record for pair in zip(BAD, good, strict=True) for record in pair]
    mixed.append({"kind": "tag", "run": "job", "key": "t", "value": "v"})

    answer = history.receive(RUNS.get, "att", 0, 1, mixed)

    assert answer.next == 1 + len(mixed)
    assert [rejection["seq"] for rejection in answer.rejected] == [
        1 + 2 * number for number in range(len(BAD))
    ]
    assert all(rejection["message"] for rejection in answer.rejected)
    assert set(history.keys(1)) == {f"key{number}" for number in range(len(BAD))}
    assert history.params(1) == {"kept": "first"}
    assert tags_of(db, 1) == {"t": "v"}


def test_a_failure_half_way_stores_nothing(db: Database, history: History) -> None:
    """The points are stored before the tags, which fail: the job has no row yet."""
    records = [sent(), {"kind": "tag", "run": "job", "key": "t", "value": "v"}]
    late = {"job": 10_000}
    with pytest.raises(NoResultFound):
        history.receive(late.get, "att", 0, 0, records)

    assert history.keys(10_000) == []
    add_jobs(db, [10_000])
    assert history.receive(late.get, "att", 0, 0, records).next == 2
    assert history.keys(10_000) == ["loss"]


def test_a_page_is_what_a_slice_would_be_and_no_more_is_fetched(
    db: Database, history: History
) -> None:
    for start in range(0, 6_000, 100):
        points = [metric("loss", step, 1_000 + step, step) for step in range(start, start + 100)]
        history.append(9, points)
    series = history.series(9, "loss")
    assert [point.step for point in series] == list(range(6_000))
    for offset in (0, 1, 127, 128, 511, 512, 3_000, 5_999, 6_000, 2**53):
        for limit in (0, 1, 128, 513, 6_000, None):
            end = None if limit is None else offset + limit
            assert history.series(9, "loss", offset, limit) == series[offset:end], (offset, limit)
    fetched: list[int] = []

    def note(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        if "metric_blocks.data" in statement:
            fetched.append(cursor.rowcount)

    event.listen(db.engine, "after_cursor_execute", note)
    try:
        history.series(9, "loss", 1_000, 100)
    finally:
        event.remove(db.engine, "after_cursor_execute", note)
    # SQLite does not say, and reads a row when it is asked for.
    assert len(fetched) == 1 and fetched[0] <= 3
