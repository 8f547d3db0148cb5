"""The records of a database as one SQLite file, and back into either database.

Owns: copying rows as they are, whatever their schema; what has to follow them in PostgreSQL.
Leaves: files to archive.py, when and whether to actions.py.
Always: the copy is the database at one instant, even if others write meanwhile; nothing is
converted, so that a row comes back as it was.
"""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Table,
    Text,
    bindparam,
    cast,
    func,
    select,
    text,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import DataError, SAWarning

import torchyard.app.application  # noqa: F401  (every package's tables)
from torchyard.base.db import SCHEMA_VERSION, Database, refuse_newer
from torchyard.base.errors import Conflict, InvalidInput

# Of the database itself, not of what is recorded in it.
_OWN = frozenset({"alembic_version", "installation"})
_ROWS_AT_ONCE = 500


@dataclass(frozen=True)
class Saved:
    """The version of the schema, and how many rows each table had at that instant."""

    schema: str
    rows: dict[str, int]


def save(db: Database, file: Path) -> Saved:
    """Write the records into a new SQLite file.

    Raises:
        Conflict: there are none, or their schema is another one than this torchyard's.
    """
    version = db.schema_version()
    if version is None:
        raise Conflict("the database is empty", "start the server once, then back it up")
    refuse_newer(version)
    if db.url.get_backend_name() == "sqlite":
        with db.engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            try:
                raw.execute("VACUUM INTO ?", (str(file),))
            except sqlite3.Error as error:
                raise InvalidInput(
                    f"the records can't be copied: {error}",
                    f"see whether there is space at `{file.parent.parent}`",
                ) from error
        # The copy is the one instant that can be counted: the database has gone on.
        return Saved(version, count_rows(file))
    if version != SCHEMA_VERSION:
        raise Conflict(
            f"the records have the schema `{version}`, and this torchyard `{SCHEMA_VERSION}`",
            "back them up with the torchyard that wrote them, or start the server once, which "
            "brings them forward",
            code="older_schema",
        )
    copy = open_file(file)
    try:
        copy.upgrade()
        with db.read() as source, copy.write() as target:
            _copy(source, target)
            rows = {table.name: _count(source, table) for table in _tables(source)}
    finally:
        copy.close()
    return Saved(version, rows)


def count_rows(file: Path) -> dict[str, int]:
    """How many rows each table of an SQLite file has, which is left as it is.

    Raises:
        sqlite3.Error: it is damaged.
    """
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        names = sorted(name for (name,) in connection.execute(query) if name not in _OWN)
        return {
            name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
            for name in names
        }


def check(file: Path) -> str:
    """What SQLite finds wrong in its own structure of a file; empty where that is nothing."""
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        found: str = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    return "" if found == "ok" else found


@contextmanager
def loading(file: Path, db: Database) -> Iterator[Connection]:
    """Bring the records of an SQLite file into an empty database, for good at the block's end.

    Raises:
        Conflict: there are records in it already.
        InvalidInput: the database can't keep a value.
    """
    saved = open_file(file)
    try:
        saved.upgrade()
        db.upgrade()
        with saved.read() as source, db.write() as target:
            for table in _tables(target):
                if _count(target, table):
                    raise Conflict(
                        f"the database has rows in `{table.name}` already",
                        "restore into an empty database",
                        code="not_empty",
                    )
            _copy(source, target)
            if target.dialect.name == "postgresql":
                _number_on(target)
            yield target
    finally:
        saved.close()


def forget_home(db: Database) -> None:
    """Take the mark of the home away that the records were of."""
    with db.write() as connection:
        connection.execute(text("DELETE FROM installation"))


def open_file(file: Path) -> Database:
    return Database(URL.create("sqlite", database=str(file)))


def _tables(connection: Connection) -> list[Table]:
    """Those that are there, parents first."""
    tables = MetaData()
    with warnings.catch_warnings():
        # An index of an expression can't be described, and indexes are not needed here.
        warnings.filterwarnings("ignore", "Skipped unsupported reflection", SAWarning)
        tables.reflect(connection)
    if connection.dialect.name == "sqlite":
        # Documents stay the text that they are kept as: a null and the document `null` differ.
        for table in tables.tables.values():
            for column in table.columns:
                if isinstance(column.type, JSON):
                    column.type = Text()
    return [table for table in tables.sorted_tables if table.name not in _OWN]


def _count(connection: Connection, table: Table) -> int:
    count: int = connection.execute(select(func.count()).select_from(table)).scalar_one()
    return count


def _copy(source: Connection, target: Connection) -> None:
    target_tables = {table.name: table for table in _tables(target)}
    for table in _tables(source):
        # A column may be called as a word of SQL, so that parameters have names of their own.
        insertion = (
            target_tables[table.name]
            .insert()
            .values({c.name: _written(target_tables[table.name].c[c.name]) for c in table.columns})
        )
        query = select(*(_read(column) for column in table.columns))
        rows = source.execute(query.execution_options(yield_per=_ROWS_AT_ONCE))
        for chunk in rows.partitions():
            batch = [{f"of_{name}": value for name, value in row._mapping.items()} for row in chunk]
            try:
                target.execute(insertion, batch)
            except DataError as error:
                reason = str(error.orig).partition("\n")[0]
                raise InvalidInput(f"a row of `{table.name}` can't be kept: {reason}") from error


def _read(column: Column[Any]) -> ColumnElement[Any]:
    if isinstance(column.type, JSON):
        return cast(column, Text).label(column.name)
    return column


def _written(column: Column[Any]) -> ColumnElement[Any]:
    if isinstance(column.type, JSON):
        return cast(bindparam(f"of_{column.name}", type_=Text), JSON)
    return bindparam(f"of_{column.name}", type_=column.type)


def _number_on(connection: Connection) -> None:
    """Let the database's own numbers go on behind those that were copied."""
    for table in _tables(connection):
        for column in table.primary_key:
            sequence = connection.execute(
                select(func.pg_get_serial_sequence(f'"{table.name}"', column.name))
            ).scalar()
            if sequence:
                connection.execute(
                    text(
                        f'SELECT setval(:name, (SELECT max("{column.name}") FROM "{table.name}"))'
                    ),
                    {"name": sequence},
                )
