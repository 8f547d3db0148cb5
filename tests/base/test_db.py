from __future__ import annotations

import ast
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

import torchyard.server  # (every package's tables)
from postgres_server import PostgresServer
from torchyard.base.db import SCHEMA_VERSION, Database, Instant, insert_new, metadata
from torchyard.base.errors import Conflict, DatabaseUnreachable, InvalidInput


def test_a_new_database_has_every_table(db: Database) -> None:
    with db.read() as connection:
        names = set(sa.inspect(connection).get_table_names())
    assert names == {*metadata.tables, "alembic_version"}
    assert db.schema_version() == SCHEMA_VERSION


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("ALTER TABLE cluster_counts DROP COLUMN machines", "no column `machines` in the table"),
        ("ALTER TABLE cluster_counts ADD COLUMN color TEXT", "a column `color` in the table"),
        ("DROP TABLE cluster_counts", "no table `cluster_counts`"),
    ],
)
def test_tables_of_another_day_are_refused(db: Database, change: str, difference: str) -> None:
    """Before a release, a table is changed by its declaration, under the same number."""
    db.upgrade()
    with db.write() as connection:
        connection.execute(sa.text(change))
    with pytest.raises(Conflict, match=f"development version .*{difference}") as refused:
        db.upgrade()
    assert "TORCHYARD_HOME" in refused.value.hint


def test_a_restore_knows_every_table() -> None:
    program = (
        "import torchyard.backups.actions; from torchyard.base.db import metadata; "
        "print(*metadata.tables)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert set(printed.stdout.split()) == set(metadata.tables), printed.stderr


def test_a_server_knows_every_table_before_its_first_request() -> None:
    """`yard gc` keeps what any table names, so none may come with the routes that use it."""
    package = Path(torchyard.__file__).parent
    declared = {
        str(call.args[0].value)
        for file in package.rglob("*.py")
        if "migrations" not in file.parts and "Table(" in (text := file.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "Table"
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    program = (
        "import torchyard.server; from torchyard.base.db import metadata; print(*metadata.tables)"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert set(printed.stdout.split()) == declared, printed.stderr


def test_times_come_back_aware_and_exact(db: Database) -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("at", Instant))
    moment = datetime(2026, 11, 21, 3, 4, 5, 678901, tzinfo=timezone.utc)
    with db.write() as connection:
        table.create(connection)
        connection.execute(table.insert().values(at=moment))
        assert connection.execute(sa.select(table.c.at)).scalar_one() == moment


def test_closing_waits_for_a_thread_that_still_reads(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round goes on in its thread once its task is canceled."""
    reading, may_end = threading.Event(), threading.Event()

    def read() -> None:
        with db.read():
            reading.set()
            may_end.wait(60)

    def sleep(seconds: float) -> None:
        may_end.set()
        reader.result(60)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr("torchyard.base.db.time", clock)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        assert reading.wait(60)
        try:
            db.close()
            assert reader.done()
        finally:
            may_end.set()


def test_an_error_rolls_back(db: Database) -> None:
    with db.write() as connection:
        connection.execute(sa.text("CREATE TABLE t (x INTEGER)"))
    with pytest.raises(RuntimeError), db.write() as connection:
        connection.execute(sa.text("INSERT INTO t VALUES (1)"))
        raise RuntimeError
    with db.read() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM t")).scalar() == 0


def test_writers_wait_for_each_other(db: Database) -> None:
    with db.write() as connection:
        connection.execute(sa.text("CREATE TABLE t (x INTEGER)"))
        connection.execute(sa.text("INSERT INTO t VALUES (0)"))

    def add() -> None:
        for _ in range(20):
            with db.write() as connection:
                seen = connection.execute(sa.text("SELECT x FROM t")).scalar_one()
                connection.execute(sa.text("UPDATE t SET x = :x"), {"x": seen + 1})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with db.read() as connection:
        assert connection.execute(sa.text("SELECT x FROM t")).scalar_one() == 80


def test_writers_of_two_servers_wait_for_each_other(db: Database) -> None:
    """No statement is refused because the database is locked."""
    with db.write() as connection:
        connection.execute(sa.text("CREATE TABLE t (writer INTEGER, x INTEGER)"))
    other = db.apart()

    def add(database: Database, writer: int) -> None:
        for number in range(20):
            with database.write() as connection:
                values = {"writer": writer, "x": number}
                connection.execute(sa.text("INSERT INTO t VALUES (:writer, :x)"), values)

    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(add, (db, other)[writer % 2], writer) for writer in range(8)]
    other.close()
    for write in writes:
        write.result()
    with db.read() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM t")).scalar_one() == 160


def test_a_read_is_one_instant(db: Database) -> None:
    with db.write() as connection:
        connection.execute(sa.text("CREATE TABLE t (x INTEGER)"))
    count = sa.text("SELECT count(*) FROM t")
    with db.read() as reading:
        assert reading.execute(count).scalar_one() == 0
        with db.write() as connection:
            connection.execute(sa.text("INSERT INTO t VALUES (1)"))
        assert reading.execute(count).scalar_one() == 0
    with db.read() as reading:
        assert reading.execute(count).scalar_one() == 1


def test_a_writer_of_everything_waits_for_those_of_parts_and_they_for_it(db: Database) -> None:
    inside = threading.Event()
    acquired = threading.Event()
    order: list[str] = []

    def part() -> None:
        with db.write("job/1"):
            inside.set()
            acquired.wait(60)
            order.append("part")

    def everything() -> None:
        with db.write():
            order.append("everything")

    def same_part() -> None:
        with db.write("job/0", "job/1"):
            order.append("same part")

    threads = [threading.Thread(target=part)]
    threads[0].start()
    assert inside.wait(60)
    threads += [threading.Thread(target=everything), threading.Thread(target=same_part)]
    for thread in threads[1:]:
        thread.start()
    acquired.set()
    for thread in threads:
        thread.join(60)
    assert order[0] == "part" and sorted(order) == ["everything", "part", "same part"]


@pytest.mark.postgres
def test_writers_of_two_parts_run_beside_each_other(postgres: PostgresServer) -> None:
    db = Database(postgres.new_database())
    done = threading.Event()

    def other() -> None:
        with db.write("job/2", "attempt/x"):
            done.set()

    with db.write("job/1"):
        thread = threading.Thread(target=other)
        thread.start()
        assert done.wait(60)
    thread.join()
    db.close()


def test_rows_that_are_there_stay_as_they_are(db: Database) -> None:
    table = sa.Table(
        "t",
        sa.MetaData(),
        sa.Column("a", sa.Integer, primary_key=True),
        sa.Column("b", sa.String(9), primary_key=True),
        sa.Column("c", sa.String(9), unique=True),
    )
    with db.write() as connection:
        table.create(connection)
        insert_new(connection, table, [])
        insert_new(connection, table, [{"a": 1, "b": "x", "c": "old"}])
        rows = [{"a": 2, "b": "y", "c": "new"}, {"a": 1, "b": "x", "c": "newer"}]
        insert_new(connection, table, rows)
        insert_new(connection, table, [{"a": 3, "b": "z", "c": "old"}])
        stored = connection.execute(sa.select(table).order_by(table.c.a)).all()
    assert [tuple(row) for row in stored] == [(1, "x", "old"), (2, "y", "new")]


@pytest.mark.postgres
def test_what_postgresql_can_not_keep_is_the_askers_mistake(postgres: PostgresServer) -> None:
    db = Database(postgres.new_database())
    with db.write() as connection:
        connection.execute(sa.text("CREATE TABLE t (x VARCHAR(3), y INTEGER)"))
    for values in ({"x": "four", "y": 1}, {"x": "a\0b", "y": 1}, {"x": "a", "y": 2**40}):
        with pytest.raises(InvalidInput, match="can't be kept"), db.write() as connection:
            connection.execute(sa.text("INSERT INTO t VALUES (:x, CAST(:y AS INTEGER))"), values)
    db.close()


@pytest.mark.postgres
def test_a_database_that_goes_away_is_told_and_found_again() -> None:
    server = PostgresServer()
    try:
        db = Database(server.url("postgres"))
        with db.read() as connection:
            assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1
        with pytest.raises(DatabaseUnreachable) as caught, db.write() as connection:
            server.kill()
            connection.execute(sa.text("SELECT 1"))
        assert caught.value.http_status == 503 and str(server.folder) not in caught.value.message
        with pytest.raises(DatabaseUnreachable), db.read():
            pass
        server.start()
        with db.read() as connection:
            assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1
        db.close()
    finally:
        server.close()
