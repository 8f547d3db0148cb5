"""From every schema there has been to today's, with rows in every table, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import torchyard.server  # noqa: F401  (every room's tables)
from jobs import rooms
from jobs.rooms import Worker, attempt_of
from postgres_server import NewDatabase, PostgresServer
from torchyard.base.clock import FakeClock
from torchyard.base.db import SCHEMA_VERSION, Database
from torchyard.base.migrations import run
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.history.metric_blocks import Point, pack
from torchyard.jobs.http.scheduler import Scheduler
from torchyard.jobs.records.types import Status

FIRST = "0001"
VERSIONS = sorted(file.name[:4] for file in (Path(run.__file__).parent / "versions").glob("0*.py"))
# Never released, and slower than they are worth in every run.
BETWEEN = [pytest.param(version, marks=pytest.mark.slow) for version in VERSIONS[1:]]
ROWS = 3

# Where a made-up value would be none that torchyard could have written.
MEANT: dict[tuple[str, str], Any] = {
    ("jobs", "type"): "command",
    ("jobs", "status"): "Completed",
    ("jobs", "error"): {"code": "c", "message": "m", "hint": ""},
    ("attempt_nodes", "error"): {"code": "c", "message": "m", "hint": ""},
    ("metrics", "tail"): pack([Point(1, 2, 0.5)]),
    ("metric_blocks", "data"): pack([Point(1, 2, 0.5)]),
}


@pytest.fixture
def old(new_empty_database: NewDatabase, tmp_path: Path) -> Iterator[Database]:
    db = Database(new_empty_database(tmp_path))
    yield db
    db.close()


def bring_to(db: Database, version: str) -> sa.MetaData:
    """The tables of that version, as the database describes them."""
    with db.write() as connection:
        run.upgrade(connection, version)
    return tables_of(db)


def tables_of(db: Database) -> sa.MetaData:
    found = sa.MetaData()
    with db.read() as connection:
        found.reflect(connection)
    found.remove(found.tables["alembic_version"])
    return found


def made_up(column: sa.Column[Any], number: int) -> Any:
    """A value of the column's kind; the same number gives rows that refer to each other."""
    for key in column.foreign_keys:
        return made_up(key.column, number)
    meant = MEANT.get((column.table.name, column.name))
    if meant is not None:
        return meant
    kind = column.type
    if isinstance(kind, sa.JSON):
        return {"ä": [number, None, 1.5]}
    if isinstance(kind, sa.Boolean):
        return number == 2
    if isinstance(kind, sa.Integer):
        return number
    if isinstance(kind, sa.Numeric | sa.Float):
        return number / 7
    if isinstance(kind, sa.LargeBinary):
        return bytes([0, number, 255])
    return f"{column.name} {number} ☃"[: getattr(kind, "length", None) or 99]


def filled(db: Database, tables: sa.MetaData) -> dict[str, list[dict[str, Any]]]:
    """Rows put into every table."""
    rows = {
        table.name: [
            {column.name: made_up(column, number) for column in table.columns}
            for number in range(1, ROWS + 1)
        ]
        for table in tables.sorted_tables
    }
    with db.write() as connection:
        for table in tables.sorted_tables:
            connection.execute(table.insert(), rows[table.name])
    return rows


@pytest.mark.parametrize("version", [FIRST, *BETWEEN])
def test_rows_of_every_schema_come_along(old: Database, version: str) -> None:
    rows = filled(old, bring_to(old, version))
    old.upgrade()
    today = tables_of(old)
    with old.read() as connection:
        for name, expected in rows.items():
            table = today.tables[name]
            found = [
                {column: row._mapping[column] for column in expected[0]}
                for row in connection.execute(sa.select(table).order_by(*table.primary_key))
            ]
            assert found == sorted(
                expected, key=lambda row: tuple(row[key.name] for key in table.primary_key)
            ), name


def test_the_rooms_read_what_the_first_schema_held(
    old: Database, clock: FakeClock, tmp_path: Path
) -> None:
    filled(old, bring_to(old, FIRST))
    old.upgrade()
    room = rooms.make(tmp_path / "home", old, clock)
    jobs = actions.list_in(room, "workspace 1 ☃")
    assert [job.name for job in jobs] == ["name 1 ☃"]
    job = jobs[0]
    assert job.tags == {"ä": [1, None, 1.5]} and job.status is Status.COMPLETED
    assert room.history.series(1, "key 1 ☃") == [Point(1, 2, 0.5), Point(1, 2, 0.5)]
    assert room.history.params(1) == {"key 1 ☃": "value 1 ☃"}
    assert len(actions.events(room, job)) == 1


@pytest.mark.parametrize("version", [FIRST, *BETWEEN[:-1]])
def test_schemas_only_grow(old: Database, version: str) -> None:
    """What an older server wrote has its place, and what it did not know of has a value."""
    before = bring_to(old, version)
    old.upgrade()
    today = tables_of(old)
    for name, table in before.tables.items():
        now = today.tables[name].columns
        assert set(now.keys()) >= set(table.columns.keys()), name
        for column in now:
            if column.name not in table.columns:
                assert column.nullable or column.server_default is not None, f"{name}.{column.name}"


def test_an_upgrade_that_fails_changes_nothing(
    old: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = bring_to(old, FIRST)
    rows = filled(old, tables)
    monkeypatch.setattr("torchyard.base.db.SCHEMA_VERSION", "0999")
    with pytest.raises(Exception, match="0999"):
        old.upgrade()
    assert old.schema_version() == FIRST
    monkeypatch.undo()
    old.upgrade()
    assert old.schema_version() == SCHEMA_VERSION and rows


@pytest.mark.postgres
def test_texts_sort_as_in_sqlite(postgres: PostgresServer) -> None:
    """Every column of text has the order of its characters; a migration may forget that."""
    db = Database(postgres.new_database("template_torchyard"))
    query = sa.text(
        "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 "
        "AND a.attcollation NOT IN (0, 'pg_catalog.\"C\"'::regcollation) "
        "AND c.relname <> 'alembic_version'"
    )
    with db.read() as connection:
        assert connection.execute(query).all() == []
    db.close()


def test_a_job_runs_on_over_an_upgrade(
    old: Database, clock: FakeClock, tmp_path: Path, new_database: NewDatabase
) -> None:
    """The old server is stopped while a worker runs; the new one brings the schema forward."""
    # A running job as an old server wrote it: the rows of today's, less what has come since.
    (tmp_path / "new").mkdir()
    new = Database(new_database(tmp_path / "new"))
    new.upgrade()
    room = rooms.make(tmp_path / "home", new, clock)
    executor = FakeExecutor()
    job = rooms.submit(room)
    Scheduler(room, executor, "http://127.0.0.1:1").look()
    worker = Worker(room, attempt_of(room, job))
    worker.tell("node_started", hostname="h", pid=1, addresses=[])
    worker.tell("ranks_started", ranks=[])
    first = [{"run": job.name, "kind": "metric", "key": "m", "value": 1, "timestamp": 1}]
    ids = {job.name: job.id}
    room.history.receive(ids.get, worker.attempt.id, 0, 0, first)
    old_tables = bring_to(old, FIRST)
    with new.read() as source, old.write() as target:
        for table in old_tables.sorted_tables:
            there = tables_of(new).tables[table.name]
            columns = [there.c[column.name] for column in table.columns]
            rows = [dict(row._mapping) for row in source.execute(sa.select(*columns))]
            if rows:
                target.execute(table.insert(), rows)
    new.close()

    old.upgrade()
    later = rooms.make(tmp_path / "home", old, clock)
    Scheduler(later, executor, "http://127.0.0.1:1").look()
    assert rooms.again(later, job).status is Status.RUNNING
    worker.room = later
    # What was acknowledged is sent again, as after an answer that was lost, and more.
    second = [*first, {**first[0], "value": 2, "timestamp": 2, "step": 1}]
    assert later.history.receive(ids.get, worker.attempt.id, 0, 0, second)["next"] == 2
    assert [point.value for point in later.history.series(job.id, "m")] == [1.0, 2.0]
    worker.tell("rank_exited", rank=0, local_rank=0, exit_code=0, signal=None)
    worker.tell("node_finalizing")
    worker.tell("node_exited", exit_code=0, error=None)
    done = rooms.again(later, job)
    assert (done.status, done.exit_code) == (Status.COMPLETED, 0)
    events = actions.events(later, done)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_two_servers_upgrade_at_once(new_empty_database: NewDatabase, tmp_path: Path) -> None:
    import threading

    url = new_empty_database(tmp_path)
    made = [Database(url) for _ in range(3)]
    failed: list[Exception] = []

    def upgrade(db: Database) -> None:
        try:
            db.upgrade()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=upgrade, args=(db,)) for db in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert {db.schema_version() for db in made} == {SCHEMA_VERSION}
    for db in made:
        db.close()
