"""Metrics of runs that go on from a checkpoint: one series, no doubled steps, nothing lost."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.history.job_rows import add_jobs
from postgres_server import NewDatabase
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.jobs.history import chart_store, history_store, rewinds
from torchyard.jobs.history.history import History, Received

RUNS = {"job": 1}


@pytest.fixture
def db(tmp_path: Path, new_database: NewDatabase) -> Iterator[Database]:
    made = Database(new_database(tmp_path))
    made.upgrade()
    add_jobs(made, [1])
    yield made
    made.close()


@pytest.fixture
def history(db: Database) -> History:
    return History(db, FakeClock())


def point(step: int, at: int, value: float = 0.0, key: str = "loss") -> dict[str, Any]:
    return {"kind": "metric", "run": "job", "key": key, "value": value, "timestamp": at,
            "step": step}  # fmt: skip


def resumed(step: int, saved_at: int, began_at: int) -> dict[str, Any]:
    value = json.dumps({"step": step, "saved_at": saved_at, "began_at": began_at})
    return {"kind": "tag", "run": "job", "key": rewinds.TAG, "value": value}


def settle(db: Database) -> None:
    with db.write() as connection:
        rewinds.settle(connection, 1)


def series(history: History, key: str = "loss") -> list[tuple[int, float]]:
    return [(each.step, each.value) for each in history.series(1, key)]


def test_steps_that_are_logged_again_are_there_once(db: Database, history: History) -> None:
    # Checkpoint of step 300 at 1300 ms; killed at step 350.
    first = [point(step, 1000 + step, 1.0) for step in range(351)]
    history.receive(RUNS.get, "a1", 0, 0, first)
    answer = history.receive(RUNS.get, "a2", 0, 0, [resumed(300, 1300, 5000)])
    assert answer == Received(1, [], [(300, 50)])
    assert [step for step, _ in series(history)] == list(range(301))
    assert history.latest(1)[0].step == 300

    history.receive(
        RUNS.get, "a2", 0, 1, [point(step, 6000 + step, 2.0) for step in range(301, 400)]
    )
    settle(db)
    assert series(history) == [(step, 1.0 if step <= 300 else 2.0) for step in range(400)]


def test_what_is_not_logged_again_comes_back(db: Database, history: History) -> None:
    # It saves before it logs: the point of step 300 is later than the checkpoint.
    history.receive(RUNS.get, "a1", 0, 0, [point(step, 1001 + step, 1.0) for step in range(311)])
    history.receive(RUNS.get, "a2", 0, 0, [resumed(300, 1300, 5000)])
    assert series(history)[-1][0] == 299
    again = [point(step, 6000 + step, 2.0) for step in range(301, 312)]
    history.receive(RUNS.get, "a2", 0, 1, again)
    settle(db)
    assert sorted(series(history)) == [(step, 1.0 if step <= 300 else 2.0) for step in range(312)]
    assert history.latest(1)[0].step == 311
    settle(db)
    assert len(series(history)) == 312


def test_metrics_by_epoch_go_by_the_time_of_the_checkpoint(history: History) -> None:
    """A checkpoint counts batches: its step says nothing of an epoch's."""
    epochs = [point(epoch, 1000 * epoch, key="accuracy") for epoch in range(1, 7)]
    history.receive(RUNS.get, "a1", 0, 0, epochs)
    history.receive(RUNS.get, "a2", 0, 0, [resumed(937, 4000, 9000)])
    assert [step for step, _ in series(history, "accuracy")] == [1, 2, 3, 4]


def test_a_run_is_resumed_again_and_again(db: Database, history: History) -> None:
    """Killed at random, each time from its last checkpoint, it ends as if never killed."""
    rng = random.Random(7)
    now, saved_step, saved_at, begin = 1_000, -1, 0, 0
    last = 3_000
    number = 0
    while begin <= last:
        attempt = f"a{number}"
        records: list[dict[str, Any]] = []
        if number:
            records.append(resumed(saved_step, saved_at, now))
        now += 50
        end = min(begin + rng.randrange(1, 900), last + 1)
        for step in range(begin, end):
            now += 3
            records.append(point(step, now, step / 10))
            if step % 100 == 0:
                now += 1
                saved_step, saved_at = step, now
        history.receive(RUNS.get, attempt, 0, 0, records)
        now += 1_000
        begin = saved_step + 1 if end <= last else last + 1
        number += 1
    assert number > 4
    settle(db)
    assert series(history) == [(step, step / 10) for step in range(last + 1)]
    assert history.latest(1)[0].step == last


def test_a_killed_worker_s_late_points_are_judged_as_well(db: Database, history: History) -> None:
    history.receive(RUNS.get, "a1", 0, 0, [point(step, 1000 + step, 1.0) for step in range(5)])
    history.receive(RUNS.get, "a2", 0, 0, [resumed(2, 1002, 5000)])
    history.receive(RUNS.get, "a2", 0, 1, [point(step, 6000 + step, 2.0) for step in (3, 4, 5)])
    late = [point(step, 1000 + step, 1.0) for step in (5, 6)] + [point(0, 1001, key="late")]
    history.receive(RUNS.get, "a1", 0, 5, late, is_over=True)
    assert [step for step, _ in series(history)] == [0, 1, 2, 3, 4, 5]
    assert series(history, "late") == [(0, 0.0)]
    settle(db)
    # Nobody logged step 6 again.
    assert [step for step, _ in series(history)] == [0, 1, 2, 3, 4, 5, 6]


def test_sampled_metrics_and_other_runs_keep_all(db: Database, history: History) -> None:
    sampled = "system/node-0/cpu_utilization_percentage"
    add_jobs(db, [2])
    by_worker = {**point(0, 2000, key=sampled), "sampled": True}
    history.receive(RUNS.get, "a1", 0, 0, [by_worker, point(0, 2000)])
    other = {**point(0, 2000), "run": "other"}
    history.receive({"other": 2}.get, "b1", 0, 0, [other])
    history.receive(RUNS.get, "a2", 0, 0, [resumed(0, 1000, 3000)])
    assert len(series(history, sampled)) == 1
    assert len(history.series(2, "loss")) == 1
    assert history.series(1, "loss") == [] and history.keys(1) == []
    settle(db)
    assert series(history) == [(0, 0.0)]


@pytest.mark.parametrize(
    "value",
    ["", "300", "[]", "{}", '{"step": 1, "saved_at": 1}', "[" * 9000, '"x"',
     '{"step": "1", "saved_at": 1, "began_at": 2}', '{"step": true, "saved_at": 1, "began_at": 2}',
     '{"step": 1, "saved_at": 1e3, "began_at": 2}',
     '{"step": 1, "saved_at": 99999999999999999999, "began_at": 2}'],
)  # fmt: skip
def test_a_wrong_tag_changes_nothing_and_is_told(history: History, value: str) -> None:
    history.receive(RUNS.get, "a1", 0, 0, [point(0, 2000)])
    tag = {"kind": "tag", "run": "job", "key": rewinds.TAG, "value": value}
    answer = history.receive(RUNS.get, "a2", 0, 0, [tag, point(1, 3000)])
    assert "torchyard.resumed_from" in answer.rejected[0]["message"] and answer.next == 2
    assert [step for step, _ in series(history)] == [0, 1]


def test_points_without_steps_are_put_aside_too(db: Database, history: History) -> None:
    def stepless(at_ms: int) -> dict[str, Any]:
        return {"kind": "metric", "run": "job", "key": "loss", "value": float(at_ms),
                "moment_us": at_ms * 1000, "step": None}  # fmt: skip

    history.receive(RUNS.get, "a1", 0, 0, [stepless(at) for at in range(1000, 1010)])
    history.receive(RUNS.get, "a2", 0, 0, [resumed(0, 1004, 2000)])
    history.receive(RUNS.get, "a2", 0, 1, [stepless(at) for at in range(3000, 3007)])
    settle(db)
    values = [value for _, value in series(history)]
    assert values == [*range(1000, 1005), *range(3000, 3007)]
    assert [step for step, _ in series(history)] == list(range(12))


def test_blocks_are_counted_as_before(db: Database, history: History) -> None:
    """Offsets and summaries go on working behind a rewritten block."""
    history.receive(RUNS.get, "a1", 0, 0, [point(step, 1000 + step) for step in range(2_000)])
    history.receive(RUNS.get, "a2", 0, 0, [resumed(700, 1700, 9000)])
    with db.read() as connection:
        (row,) = connection.execute(history_store.metrics.select()).all()
        counts = chart_store.counts(connection, 1, "loss")
    in_tail = len(row.tail) // 24
    assert row.points == 701 == sum(count for _, count in counts) + in_tail
    assert [number for number, _ in counts] == list(range(row.blocks))
    assert (row.max_step, row.max_timestamp, row.latest_step) == (700, 1700, 700)
    assert [each.step for each in history.series(1, "loss", 600, 50)] == list(range(600, 650))
