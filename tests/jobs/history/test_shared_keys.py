"""Keys that more than one logs, MLflow, SDK v1's `run.log` or the worker: MLflow owns them before
the others, and no point is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from jobs.history.job_rows import add_jobs
from postgres_server import NewDatabase
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.jobs.history import chart_store, rewinds, shared_keys
from torchyard.jobs.history.history import History, Received
from torchyard.jobs.history.history_records import Record, metric, read
from torchyard.jobs.history.metric_blocks import Point, pack
from torchyard.jobs.records import store
from torchyard.jobs.records.job_events import notices_of

RUNS = {"r": 1}
START_MS = 1_790_000_000_000
EVERY_MS = 30_000
APART = "loss (run.log)"
VALUES = [2.5, 1.5, 1.5, 0.25]


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


def by_mlflow(index: int, key: str = "loss", every_ms: int = EVERY_MS) -> dict[str, Any]:
    timestamp, step = START_MS + index * every_ms, 10 * index + 10
    return {"run": "r", "kind": "metric", "key": key, "value": VALUES[index % 4],
            "timestamp": timestamp, "step": step}  # fmt: skip


def stepless(index: int, key: str = "loss", every_ms: int = EVERY_MS) -> dict[str, Any]:
    """As SDK v1 logs it, a little later."""
    body = by_mlflow(index, key, every_ms)
    return {**body, "moment_us": (body.pop("timestamp") + 7) * 1000, "step": None}


def stepped(index: int, key: str = "loss", every_ms: int = EVERY_MS) -> dict[str, Any]:
    """As SDK v1 logs it with `step=`."""
    return {**stepless(index, key, every_ms), "step": 10 * index + 10}


LOGS = {"m": by_mlflow, "w": stepless, "s": stepped}


def logged(calls: str) -> list[dict[str, Any]]:
    """`m0w0`: MLflow's point 0 and one of `run.log`."""
    return [LOGS[calls[at]](int(calls[at + 1])) for at in range(0, len(calls), 2)]


def append(history: History, bodies: Sequence[dict[str, Any]]) -> None:
    records: list[Record] = [read(body)[1] for body in bodies]
    history.append(1, records)


def seen(history: History, key: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in history.series(1, key)]


def told(db: Database) -> list[str]:
    with db.read() as connection:
        return notices_of(store.events_after(connection, 1, 0))


def settle(db: Database) -> None:
    with db.write() as connection:
        rewinds.settle(connection, 1)


@pytest.mark.parametrize(
    "calls",
    [
        "m0 w0 m1 w1 m2 w2 m3 w3",
        "w0 m0 w1 m1 w2 m2 w3 m3",
        "m0m1m2m3 w0w1w2w3",
        "w0w1w2w3 m0m1m2m3",
        "w0m0w1m1 m2m3w2w3",
        # Sent again.
        "m0 w0 m0 w0 m1 w1w0 m2m1 w2 m3 w3w3 w3 m3",
        "w0 w1 w0 m0 w1 m0m1 w2 w2 m2 m3 w3",
        "m0 s0 m1 s1 m2 s2 m3 s3",
        "s0 m0 s1 m1 s2 m2 s3 m3",
        "s0s1s2s3 m0m1m2m3",
        "s0 m0 s0 m0 s1 m1s0 m2m1 s2 s3 m3 s3s3 m3",
    ],
)
def test_each_client_has_a_series_whichever_came_first(
    history: History, db: Database, calls: str
) -> None:
    for call in calls.split():
        # As after a restart of the server: nothing is remembered but what is stored.
        append(History(db, FakeClock()), logged(call))
    assert seen(history, "loss") == [(10 * index + 10, VALUES[index]) for index in range(4)]
    steps = range(10, 50, 10) if "s" in calls else range(4)
    assert seen(history, APART) == list(zip(steps, VALUES, strict=True))
    latest = {point.key: (point.step, point.value) for point in history.latest(1)}
    assert latest == {"loss": (40, 0.25), APART: (steps[3], 0.25)}
    assert told(db) == [shared_keys.NOTICE]


@pytest.mark.parametrize("log", [stepless, stepped])
def test_what_run_log_alone_logs_keeps_its_key(history: History, db: Database, log: Any) -> None:
    for index in range(300):
        append(history, [log(index, every_ms=500)])
    assert [value for _, value in seen(history, "loss")] == VALUES * 75
    assert history.keys(1) == ["loss"] and told(db) == []
    assert history.latest(1)[0].step == (3000 if log is stepped else 299)


def test_long_series_are_kept_whole(history: History, db: Database) -> None:
    for index in range(1000):
        append(history, [stepless(index, every_ms=100)])
    append(history, [by_mlflow(0)])
    for index in range(1000, 1100):
        append(history, [stepless(index, every_ms=100)])
    assert seen(history, APART) == [(index, VALUES[index % 4]) for index in range(1100)]
    assert history.counts([1], APART) == {1: 1100} and history.counts([1], "loss") == {1: 1}
    with db.read() as connection:
        head = chart_store.head(connection, 1, APART)
        assert head is not None and head.blocks > 0 and chart_store.head(connection, 1, "loss")


@pytest.mark.parametrize("calls", ["m0w0m1w1", "w0w1m0m1", "w0m0w1m1"])
def test_a_relay_delivers_both(history: History, db: Database, calls: str) -> None:
    records = logged(calls)
    for seq in range(len(records)):
        # The answer to each was lost, so that it comes again.
        for _ in range(2):
            answer = history.receive(RUNS.get, "a1", 0, seq, [records[seq]])
            assert answer == Received(seq + 1)
    again = [{**body, "run": "r"} for body in logged(calls)]
    assert history.receive(RUNS.get, "a1", 1, 0, again) == Received(4)
    assert (len(seen(history, "loss")), len(seen(history, APART))) == (2, 2)
    assert told(db) == [shared_keys.NOTICE]


def test_it_is_told_once_for_all_keys(history: History, db: Database) -> None:
    for key in ("loss", "accuracy"):
        append(history, [by_mlflow(0, key), stepless(0, key)])
    append(history, [stepless(0, "late"), by_mlflow(0, "own")])
    append(history, [by_mlflow(0, "late")])
    assert history.keys(1) == [
        "accuracy", "accuracy (run.log)", "late", "late (run.log)", "loss", APART, "own",
    ]  # fmt: skip
    assert told(db) == [shared_keys.NOTICE]


def test_nothing_is_lost_where_the_name_is_in_use(history: History) -> None:
    append(history, [by_mlflow(0, APART), stepless(0)])
    append(history, [by_mlflow(1)])
    append(history, [stepless(2), by_mlflow(3, APART)])
    # The two share it, as on Azure.
    assert seen(history, "loss") == [(0, 2.5), (20, 1.5)]
    assert [value for _, value in seen(history, APART)] == [2.5, 0.25, 1.5]
    append(history, [stepless(0, "x")])
    append(history, [by_mlflow(1, "x"), by_mlflow(2, "x (run.log)")])
    assert [len(seen(history, key)) for key in ("x", "x (run.log)")] == [2, 1]


def test_long_keys_have_a_name_too(history: History) -> None:
    keys = ["k" * 249 + end for end in "ab"]
    append(history, [stepless(index, key) for index, key in enumerate(keys)])
    append(history, [by_mlflow(index, key) for index, key in enumerate(keys)])
    append(history, [stepless(index + 2, key) for index, key in enumerate(keys)])
    assert sum(history.counts([1], key)[1] for key in history.keys(1)) == 6
    assert max(map(len, history.keys(1))) == 250


def test_integers_of_run_log_stay_integers(history: History) -> None:
    append(history, [{**stepless(0), "value": 3, "type": "int"}])
    append(history, [by_mlflow(1)])
    assert history.types(1)[APART] == "int"


def test_a_resumed_run_goes_on_under_its_keys(history: History, db: Database) -> None:
    """What was put aside whole comes back to the key, which either of the two may own then."""
    value = {"step": 0, "saved_at": START_MS - 1, "began_at": START_MS + 10 * EVERY_MS}
    tag = {"kind": "tag", "run": "r", "key": rewinds.TAG, "value": json.dumps(value)}
    history.receive(RUNS.get, "a1", 0, 0, [stepped(0), by_mlflow(0, "own")])
    history.receive(RUNS.get, "a2", 0, 0, [tag])
    assert history.keys(1) == []
    settle(db)
    append(history, [stepped(1), by_mlflow(1, "own")])
    for key in ("loss", "own"):
        assert seen(history, key) == [(10, 2.5), (20, 1.5)]
    assert history.keys(1) == ["loss", "own"] and told(db) == []


def test_steps_that_an_older_version_moved_are_read(history: History, db: Database) -> None:
    far = -(2**61)
    tail = pack([Point(1, 10, 0.5), Point(2, far + 20, 0.25), Point(3, -(2**60), 0.0)])
    history.append(1, [metric("loss", 0.5, 1, 10), metric("other", 1.0, 1, -5)])
    with db.write() as connection:
        metrics = sa.table("metrics", sa.column("key"), sa.column("tail"), sa.column("points"))
        of_key = metrics.c.key == "loss"
        connection.execute(sa.update(metrics).where(of_key).values(tail=tail, points=3))
        for table, column in (
            ("metrics", "by_run_log"), ("metrics", "sampled"), ("attempt_nodes", "ran_s"),
            ("checksums", "job"), ("checksums", "written_at"),
        ):  # fmt: skip
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
        for table in ("adopted_jobs", "pipeline_steps", "pipelines"):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0206'")
    db.upgrade()
    assert seen(history, "loss") == [(10, 0.5), (20, 0.25), (-(2**60), 0.0)]
    assert seen(history, "other") == [(-5, 1.0)]
    # Whoever logs a key next has logged it before.
    append(history, [stepped(2)])
    assert history.keys(1) == ["loss", "other"]


CPU = "system/node-0/cpu_utilization_percentage"


def sampled(index: int, key: str = CPU) -> dict[str, Any]:
    return {**by_mlflow(index, key), "sampled": True}


@pytest.mark.parametrize("calls", ["mmssms", "ssmmsm", "smsmsm"])
def test_what_a_script_logs_is_the_scripts_and_what_a_worker_samples_is_hidden(
    history: History, db: Database, calls: str
) -> None:
    """MLflow's own system metrics have the worker's names where the script calls a node so."""
    seq = 0
    for seq, call in enumerate(calls):
        body = by_mlflow(seq, CPU) if call == "m" else sampled(seq)
        for _ in range(2):  # as after an answer that was lost
            history.receive(RUNS.get, "a1", 0, seq, [body])
    own = [10 * index + 10 for index, call in enumerate(calls) if call == "m"]
    by_worker = [10 * index + 10 for index, call in enumerate(calls) if call == "s"]
    assert [step for step, _ in seen(history, CPU)] == own
    assert [step for step, _ in seen(history, f"{CPU} (sampled)")] == by_worker
    assert history.keys(1) == [CPU]
    assert history.keys(1, sampled=True) == [CPU, f"{CPU} (sampled)"]
    assert told(db) == []


def test_no_key_alone_makes_a_metric_the_workers(history: History) -> None:
    append(history, [by_mlflow(0, CPU), by_mlflow(0, "system/rank-1/own"), sampled(0, "loss")])
    assert history.keys(1) == [CPU, "system/rank-1/own"]


def test_what_older_versions_sampled_is_known_by_its_key(history: History, db: Database) -> None:
    append(history, [by_mlflow(0, CPU), by_mlflow(0, "system/own"), by_mlflow(0)])
    with db.write() as connection:
        connection.exec_driver_sql("ALTER TABLE metrics DROP COLUMN sampled")
        for table in ("adopted_jobs", "pipeline_steps", "pipelines"):
            connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0208'")
    db.upgrade()
    assert history.keys(1) == ["loss", "system/own"]
    assert history.keys(1, sampled=True) == ["loss", CPU, "system/own"]
