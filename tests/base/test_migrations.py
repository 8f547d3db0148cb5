"""From the first schema to the next one, with rows in every table, on both databases.

The newest schema has no successor yet, so that `next_migration.py` stands in for it.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import torchyard.server  # noqa: F401  (every package's tables)
from base import next_migration
from base.schema_dump import Schema, describe, rows
from jobs import support
from jobs.support import Worker, attempt_of
from postgres_server import NewDatabase, PostgresServer
from torchyard.base.clock import FakeClock
from torchyard.base.db import SCHEMA_VERSION, Database
from torchyard.base.migrations import run
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.history.metric_blocks import Point, pack
from torchyard.jobs.records.types import Status
from torchyard.jobs.requests import job_queries
from torchyard.jobs.scheduler import Scheduler

MIGRATIONS = Path(run.__file__).parent
# Every migration that was ever committed. A change of the schema is a new file and a new line.
RELEASED = {
    "0210_pipelines.py": "7575e637062d238e3950ce1a7b1b7c2531d218899a0f8f736b0cdcf0df3c5919",
    "0211_adopted_jobs.py": "d28412564d16f2113206f1d63f340041184b05bc978ad988919bcdc9459d8ba4",
    "0209_sampled_metrics.py": "88198af7278cb78e26d6bf33b38a7f321b40056800e3b32a00743ecc54aaa7da",
    "0208_writers_seconds.py": "e70dd2345a973feb891fcfee436e0e1d9bfda369ec827aff778ae58959d6240d",
    "0207_metric_owners.py": "e38fe1ef97191b6ade83d3af79648727d79b277c77b3818afe515560f66879a0",
    "0206_workspace_blobs.py": "0555ece00fe1d3da26ac72489db66cf50f5289e0337f979ec1da019c2d573d4e",
    "0205_sealed_secrets.py": "f83235f6a84a3ac5185ffdc58ce0de9a547e79147d904f2cd32c0ddea05bda3b",
    "0200_first_schema.py": "c576c5c5a8b9f06b8df89621e2878002a3d44be5e63d8e14675792a991b653b4",
    "0203_datastore_owners.py": "ea86fc616b7c3d42a55e07b39bb543f900337b42e7adc7c6afb456ccdd371e49",
}
# SQLAlchemy does not describe an index of an expression.
pytestmark = pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based")
NEXT = next_migration.revision
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


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    """torchyard's migrations and one more."""
    folder = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(str(next_migration.__file__), folder / "versions" / f"{NEXT}_next.py")
    return folder


def test_a_released_migration_never_changes() -> None:
    hashes = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in (MIGRATIONS / "versions").glob("*.py")
    }
    assert hashes == RELEASED
    assert max(name[:4] for name in RELEASED) == SCHEMA_VERSION


def made_again(db: Database) -> sa.MetaData:
    """The tables of a new database, as it describes them."""
    db.upgrade()
    return tables_of(db)


def tables_of(db: Database) -> sa.MetaData:
    reflected = sa.MetaData()
    with db.read() as connection:
        reflected.reflect(connection)
    reflected.remove(reflected.tables["alembic_version"])
    return reflected


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
    made = {
        table.name: [
            {column.name: made_up(column, number) for column in table.columns}
            for number in range(1, ROWS + 1)
        ]
        for table in tables.sorted_tables
    }
    with db.write() as connection:
        for table in tables.sorted_tables:
            connection.execute(table.insert(), made[table.name])
    return made


def test_rows_of_every_table_come_along(old: Database, migrations: Path) -> None:
    expected_rows = filled(old, made_again(old))
    old.upgrade(NEXT, migrations)
    assert old.schema_version() == NEXT
    today = tables_of(old)
    with old.read() as connection:
        for name, expected in expected_rows.items():
            table = today.tables[name]
            reflected = [
                {column: row._mapping[column] for column in expected[0]}
                for row in connection.execute(sa.select(table).order_by(*table.primary_key))
            ]
            assert reflected == sorted(
                expected, key=lambda row: tuple(row[key.name] for key in table.primary_key)
            ), name


def test_a_migration_moves_rows(old: Database, migrations: Path) -> None:
    filled(old, made_again(old))
    old.upgrade(NEXT, migrations)
    with old.read() as connection:
        notes = connection.execute(sa.text("SELECT * FROM job_notes ORDER BY job_id")).all()
        cost_centers = connection.execute(sa.text("SELECT cost_center FROM jobs")).scalars().all()
    assert notes == [(number, f"display_name {number} ☃") for number in range(1, ROWS + 1)]
    assert cost_centers == [""] * ROWS


def test_the_packages_read_what_an_older_schema_held(
    old: Database, migrations: Path, clock: FakeClock, tmp_path: Path
) -> None:
    filled(old, made_again(old))
    old.upgrade(NEXT, migrations)
    services = support.make_services(tmp_path / "home", old, clock)
    jobs = job_queries.list_in(services, "workspace 1 ☃")
    assert [job.name for job in jobs] == ["name 1 ☃"]
    job = jobs[0]
    tags: dict[str, Any] = dict(job.tags)
    assert tags == {"ä": [1, None, 1.5]} and job.status is Status.COMPLETED
    assert services.history.series(1, "key 1 ☃") == [Point(1, 2, 0.5), Point(1, 2, 0.5)]
    assert services.history.params(1) == {"key 1 ☃": "value 1 ☃"}
    assert len(actions.events(services.db, job)) == 1


def test_schemas_only_grow(old: Database, migrations: Path) -> None:
    """What an older server wrote has its place, and what it did not know of has a value."""
    made_again(old)
    before = schema_of(old)
    old.upgrade(NEXT, migrations)
    after = schema_of(old)
    for table, about in before.items():
        for kind in ("columns", "collations", "constraints", "foreign_keys", "indexes"):
            assert about.get(kind, {}).items() <= after[table].get(kind, {}).items(), table
    today = tables_of(old)
    for table in before.keys() - {"alembic_version"}:
        for column in today.tables[table].columns:
            if column.name not in before[table]["columns"]:
                assert column.nullable or column.server_default is not None, f"{table}.{column}"


def schema_of(db: Database) -> Schema:
    with db.read() as connection:
        return describe(connection)


def test_an_upgrade_that_fails_changes_nothing(old: Database, migrations: Path) -> None:
    filled(old, made_again(old))
    with old.read() as connection:
        before = describe(connection), rows(connection)
    step = migrations / "versions" / f"{NEXT}_next.py"
    working = step.read_text()
    step.write_text(f'{working}    raise RuntimeError("broken step")\n')
    with pytest.raises(RuntimeError, match="broken step"):
        old.upgrade(NEXT, migrations)
    with old.read() as connection:
        assert (describe(connection), rows(connection)) == before
    step.write_text(working)
    old.upgrade(NEXT, migrations)
    assert old.schema_version() == NEXT


@pytest.mark.postgres
@pytest.mark.parametrize("version", [SCHEMA_VERSION, NEXT])
def test_texts_sort_as_in_sqlite(postgres: PostgresServer, migrations: Path, version: str) -> None:
    """Every column of text has the order of its characters; a migration may forget that."""
    db = Database(postgres.new_database("template_torchyard"))
    db.upgrade(version, migrations)
    query = sa.text(
        "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 "
        "AND a.attcollation NOT IN (0, 'pg_catalog.\"C\"'::regcollation)"
    )
    with db.read() as connection:
        assert connection.execute(query).all() == []
    db.close()


def number_on(connection: sa.Connection, tables: sa.MetaData) -> None:
    """PostgreSQL does not count the rows that were copied with their numbers."""
    for table in tables.sorted_tables:
        for column in table.primary_key:
            if column.server_default is not None:
                connection.exec_driver_sql(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column.name}'), "
                    f"COALESCE(MAX({column.name}), 0) + 1, false) FROM {table.name}"
                )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_runs_on_over_an_upgrade(
    old: Database,
    migrations: Path,
    clock: FakeClock,
    tmp_path: Path,
    new_database: NewDatabase,
) -> None:
    """The old server is stopped while a worker runs; the new one brings the schema forward."""
    # A running job as an old server wrote it.
    (tmp_path / "new").mkdir()
    new = Database(new_database(tmp_path / "new"))
    new.upgrade()
    services = support.make_services(tmp_path / "home", new, clock)
    executor = FakeExecutor()
    job = support.submit(services)
    Scheduler(services, executor, "http://127.0.0.1:1").run_round()
    worker = Worker(services, attempt_of(services, job))
    worker.tell("node_started", hostname="h", pid=1, addresses=[])
    worker.tell("ranks_started", ranks=[])
    first = [{"run": job.name, "kind": "metric", "key": "m", "value": 1, "timestamp": 1}]
    ids = {job.name: job.id}
    services.history.receive(ids.get, worker.attempt.id, 0, 0, first)
    old_tables = made_again(old)
    with new.read() as source, old.write() as target:
        for table in old_tables.sorted_tables:
            there = tables_of(new).tables[table.name]
            columns = [there.c[column.name] for column in table.columns]
            copied = [dict(row._mapping) for row in source.execute(sa.select(*columns))]
            if copied:
                target.execute(table.insert(), copied)
        number_on(target, old_tables)
    new.close()

    old.upgrade(NEXT, migrations)
    later = support.make_services(tmp_path / "home", old, clock)
    Scheduler(later, executor, "http://127.0.0.1:1").run_round()
    assert support.again(later, job).status is Status.RUNNING
    worker.services = later
    # What was acknowledged is sent again, as after an answer that was lost, and more.
    second = [*first, {**first[0], "value": 2, "timestamp": 2, "step": 1}]
    assert later.history.receive(ids.get, worker.attempt.id, 0, 0, second).next == 2
    assert [point.value for point in later.history.series(job.id, "m")] == [1.0, 2.0]
    worker.tell("rank_exited", rank=0, local_rank=0, exit_code=0, signal=None)
    worker.tell("node_finalizing")
    worker.tell("node_exited", exit_code=0, error=None)
    done = support.again(later, job)
    assert (done.status, done.exit_code) == (Status.COMPLETED, 0)
    events = actions.events(later.db, done)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("is_empty", [True, False])
def test_two_servers_upgrade_at_once(
    new_empty_database: NewDatabase, migrations: Path, tmp_path: Path, is_empty: bool
) -> None:
    url = new_empty_database(tmp_path)
    databases = [Database(url) for _ in range(3)]
    if not is_empty:
        databases[0].upgrade()
    failed: list[Exception] = []

    def upgrade(db: Database) -> None:
        try:
            db.upgrade(NEXT, migrations)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=upgrade, args=(db,)) for db in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert {db.schema_version() for db in databases} == {NEXT}
    for db in databases:
        db.close()
