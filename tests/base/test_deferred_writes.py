"""Writes of a transaction wait for each other, and nobody can tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Connection,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    bindparam,
    delete,
    event,
    insert,
    select,
)
from sqlalchemy.exc import IntegrityError

from torchyard.base.db import Database
from torchyard.base.deferred_writes import change_row, defer

_tables = MetaData()
boats = Table(
    "boats",
    _tables,
    Column("id", Integer, primary_key=True),
    Column("name", String(20), nullable=False),
    Column("crew", Integer, nullable=False, server_default="0"),
)
oars = Table("oars", _tables, Column("boat", ForeignKey("boats.id")), Column("number", Integer))
_ADD, _ADD_OARS = insert(boats), insert(oars)
_DROP = delete(boats).where(boats.c.id == bindparam("number"))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'boats.db'}")
    with database.write() as connection:
        _tables.create_all(connection)
    yield database
    database.close()


@pytest.fixture
def statements(db: Database) -> list[str]:
    executed: list[str] = []

    @event.listens_for(db.engine, "before_cursor_execute")
    def _executed(_: Any, cursor: Any, statement: str, *rest: Any) -> None:
        executed.append(statement.partition(" ")[0])

    return executed


def rows(connection: Connection) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(select(boats).order_by(boats.c.id))]


def test_writes_of_one_kind_are_one_statement(db: Database, statements: list[str]) -> None:
    with db.write() as connection:
        for number in range(20):
            defer(connection, _ADD, [{"id": number, "name": "a"}])
            defer(connection, _ADD_OARS, [{"boat": number, "number": 1}])
        for number in range(20):
            change_row(connection, boats, {"id": number}, {"name": "b"})
            change_row(connection, boats, {"id": number}, {"crew": number})
            change_row(connection, boats, {"id": number}, {"name": "c"})
    assert statements == ["BEGIN", "INSERT", "INSERT", "UPDATE"]
    with db.read() as connection:
        assert rows(connection) == [(number, "c", number) for number in range(20)]


def test_a_transaction_reads_what_it_wrote(db: Database) -> None:
    with db.write() as connection:
        defer(connection, _ADD, [{"id": 1, "name": "a"}])
        assert rows(connection) == [(1, "a", 0)]
        change_row(connection, boats, {"id": 1}, {"crew": 2})
        assert rows(connection) == [(1, "a", 2)]


def test_the_order_of_different_writes_to_one_table_counts(db: Database) -> None:
    with db.write() as connection:
        defer(connection, _ADD, [{"id": 1, "name": "a"}])
        defer(connection, _DROP, [{"number": 1}])
        defer(connection, _ADD, [{"id": 1, "name": "b"}])
        change_row(connection, boats, {"id": 1}, {"crew": 4})
        defer(connection, _DROP, [{"number": 1}])
        defer(connection, _ADD, [{"id": 1, "name": "c"}])
        assert rows(connection) == [(1, "c", 0)]


def test_a_write_that_fails_at_the_end_takes_the_transaction_with_it(db: Database) -> None:
    with pytest.raises(IntegrityError), db.write() as connection:
        defer(connection, _ADD, [{"id": 1, "name": "a"}])
        change_row(connection, boats, {"id": 1}, {"name": None})
    with db.write() as connection:
        assert rows(connection) == []
        defer(connection, _ADD, [{"id": 2, "name": "b"}])
    with db.read() as connection:
        assert rows(connection) == [(2, "b", 0)]


def test_what_waited_when_the_transaction_failed_is_not_written(db: Database) -> None:
    with pytest.raises(KeyError), db.write() as connection:
        defer(connection, _ADD, [{"id": 1, "name": "a"}])
        raise KeyError
    with db.write() as connection:
        assert rows(connection) == []
