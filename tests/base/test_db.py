from __future__ import annotations

import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest
import sqlalchemy as sa

import torchyard.server  # noqa: F401  (every room's tables)
from torchyard.base.db import Database, Instant, metadata


def test_the_migrations_make_the_schema_that_the_rooms_declare(db: Database) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with db.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_times_come_back_aware_and_exact(tmp_path: Path) -> None:
    db = Database(f"sqlite:///{tmp_path / 'x.db'}")
    table = sa.Table("t", sa.MetaData(), sa.Column("at", Instant))
    moment = datetime(2026, 11, 21, 3, 4, 5, 678901, tzinfo=timezone.utc)
    with db.write() as connection:
        table.create(connection)
        connection.execute(table.insert().values(at=moment))
        assert connection.execute(sa.select(table.c.at)).scalar_one() == moment
    db.close()


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
