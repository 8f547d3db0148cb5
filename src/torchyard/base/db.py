"""The database: one place that knows which one it is.

Owns: connections, transactions, column types, the schema's version.
Leaves: tables and queries to each package's `store`, PostgreSQL's own ways to postgres.py.
Always: a write transaction holds what it changes from its first statement, so it never has to be
tried again half-way; no transaction is open while the network is waited for.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Delete,
    Engine,
    Insert,
    MetaData,
    Table,
    create_engine,
    event,
    text,
)
from sqlalchemy.engine import URL, Dialect, make_url
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool
from sqlalchemy.types import TypeDecorator

from torchyard.base import postgres, sealed_columns
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.sealed_columns import Seal

# How long closing waits for those who still read.
_CLOSING_S = 5.0
SCHEMA_VERSION = "0211"
# Development versions before 0.1.0 numbered their schemas 0001 to 0129.
_FIRST_VERSION = "0200"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# By the kind of database: each table's columns.
_COLUMNS = {
    "sqlite": text(
        "SELECT tables.name, columns.name FROM sqlite_master AS tables, "
        "pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
    ),
    "postgresql": text(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = current_schema()"
    ),
}

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_AFTER = "torchyard.after"
_MODE_TRIES, _MODE_PAUSE_S = 100, 0.1
# Pages in the log before SQLite copies them into the file, with a wait for the disk each time: by
# default 1,000, which 300 metrics fill.
_CHECKPOINT = "wal_autocheckpoint=4000"


class Instant(TypeDecorator[datetime]):
    """An aware time, kept as whole microseconds since 1970: every database sorts it alike."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else _EPOCH + timedelta(microseconds=value)


class Database:
    """Short transactions on one database.

    Args:
        url: an SQLAlchemy URL, `sqlite:////path/file.db` or `postgresql://user@host/name`.
        shared: other servers write there, too: none may hold them up by a transaction that it
            does not go on with.
        seal: of the home that it belongs to; None passes sealed values through as they are.
    """

    def __init__(self, url: str | URL, shared: bool = False, seal: Seal | None = None) -> None:
        self.url = make_url(url)
        self._shared = shared
        self._seal = seal
        self._is_postgres = self.url.get_backend_name() == "postgresql"
        self._engine: Engine = (
            postgres.engine(self.url, shared) if self._is_postgres else _sqlite_engine(self.url)
        )
        sealed_columns.use(self._engine, seal)
        self._reading = self._writing = self._engine
        if self._is_postgres:
            self._reading = self._engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            self._writing = self._engine.execution_options(isolation_level="READ COMMITTED")
        # SQLite waits for another writer by sleeping ever longer, up to 100 ms; threads of one
        # server wait for a lock instead.
        self._writer: AbstractContextManager[Any] = (
            nullcontext() if self._is_postgres else threading.RLock()
        )

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def writers(self) -> int:
        """How many threads of a server can write at once and gain by it: SQLite has one writer, and
        a second thread prepares what it will write.
        """
        return 16 if self._is_postgres else 2

    def apart(self) -> Database:
        """The same one by connections of its own: for what must not wait behind all requests."""
        return Database(self.url, self._shared, self._seal)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads: one consistent view.

        Raises:
            DatabaseUnreachable: the database does not answer.
        """
        with _translated(), self._reading.begin() as connection:
            self._begin(connection, "BEGIN")
            yield connection

    @contextmanager
    def write(self, *alone: str) -> Iterator[Connection]:
        """A transaction that may write; committed at the end, rolled back on an error.

        It is the only one, from its first statement to its end, so that what it has read stays
        true until it has written. One that says what `alone` it reads and changes runs beside
        others on PostgreSQL: no two of the same part, and none beside one of everything.

        Args:
            alone: parts of the database, such as `job/12`; none means everything.

        Raises:
            InvalidInput: the database can't keep a value that it was given.
            DatabaseUnreachable: the database does not answer; if it was lost at the very end, what
                was written may be there all the same, so a retry has to be recognised.
        """
        after: list[Callable[[], None]] = []
        try:
            with _translated(), self._writer, self._writing.begin() as connection:
                connection.info[_AFTER] = after
                self._begin(connection, "BEGIN IMMEDIATE")
                if self._is_postgres:
                    postgres.hold(connection, alone)
                yield connection
        finally:
            for act in after:
                act()

    def _begin(self, connection: Connection, statement: str) -> None:
        """SQLite's driver begins none by itself here. An engine that has a listener for it looks
        for listeners of all kinds at each statement, which takes a tenth of its time.
        """
        if not self._is_postgres:
            connection.exec_driver_sql(statement)

    def joined(self, connection: Connection) -> Database:
        """The same one within an open `write`: what is read and written by it is part of that."""
        return _Joined(self, connection)

    def upgrade(self, target: str = SCHEMA_VERSION, migrations: Path | None = None) -> None:
        """Bring the schema to `target`; Alembic is imported only when it is behind.

        An empty database gets every table that has been imported.

        Args:
            migrations: a folder with `env.py` and `versions/`; None is torchyard's own.

        Raises:
            Conflict: the schema is newer than this torchyard, or from before 0.1.0.
        """
        version = self.schema_version()
        if version == target:
            if target == SCHEMA_VERSION:
                self._refuse_other_tables()
            return
        refuse_newer(version)
        from torchyard.base.migrations import run

        with self.write() as connection:
            # Another server may have done it while this one waited.
            if self._version(connection) is None:
                run.create(connection, metadata, SCHEMA_VERSION)
            if self._version(connection) != target:
                run.upgrade(connection, target, migrations)

    def schema_version(self) -> str | None:
        """None when the database is empty.

        Raises:
            Conflict: a development version before 0.1.0 made the schema.
        """
        with self.read() as connection:
            return self._version(connection)

    def _version(self, connection: Connection) -> str | None:
        if not connection.dialect.has_table(connection, "alembic_version"):
            return None
        query = text("SELECT version_num FROM alembic_version")
        version: str | None = connection.execute(query).scalar()
        refuse_development(version, f"the database `{postgres.redacted(self.url)}`")
        return version

    def _refuse_other_tables(self) -> None:
        """
        Raises:
            Conflict: a development version of the same number declared its tables otherwise.
        """
        there: dict[str, set[str]] = {}
        with self.read() as connection:
            for table, column in connection.execute(_COLUMNS[connection.dialect.name]):
                there.setdefault(table, set()).add(column)
        for name, declared in sorted(metadata.tables.items()):
            columns = {column.name for column in declared.columns}
            if name not in there:
                difference = f"no table `{name}`"
            elif missing := sorted(columns - there[name]):
                difference = f"no column `{missing[0]}` in the table `{name}`"
            elif unknown := sorted(there[name] - columns):
                difference = f"a column `{unknown[0]}` in the table `{name}`, which this one lacks"
            else:
                continue
            raise _of_development(f"the database `{postgres.redacted(self.url)}`", difference)

    def close(self) -> None:
        """Close every connection, after a moment for threads that still use one: a round goes on in
        its thread once its task is canceled.
        """
        pool, until = self._engine.pool, time.monotonic() + _CLOSING_S
        while isinstance(pool, QueuePool) and pool.checkedout() and time.monotonic() < until:
            time.sleep(0.01)
        self._engine.dispose()


class _Joined(Database):
    """One write transaction that is open, in place of new ones."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self.__dict__.update(vars(database))
        self._connection = connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        yield self._connection

    @contextmanager
    def write(self, *alone: str) -> Iterator[Connection]:
        # A caller that goes on after an error undoes what this one wrote, and no more.
        with self._connection.begin_nested():
            yield self._connection


def refuse_development(version: str | None, subject: str) -> None:
    """
    Raises:
        Conflict: a development version before 0.1.0 made the schema of `subject`.
    """
    if version is not None and version < _FIRST_VERSION:
        raise _of_development(subject, f"schema `{version}`")


def _of_development(subject: str, difference: str) -> Conflict:
    return Conflict(
        f"{subject} was made by a development version of torchyard before 0.1.0 ({difference})",
        "start fresh: set TORCHYARD_HOME to a new folder, and `--database` to an empty "
        "database if you use it; to read the old records, open them with the version that "
        "made them",
        code="development_schema",
    )


def refuse_newer(version: str | None) -> None:
    """
    Raises:
        Conflict: `version` is newer than the schemas that this torchyard knows.
    """
    if version is not None and version > SCHEMA_VERSION:
        raise Conflict(
            f"the schema `{version}` is newer than this torchyard, which knows `{SCHEMA_VERSION}`",
            "run the torchyard that wrote it, or a later one",
            code="newer_schema",
        )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DataError as error:
        # A text too long for its column, a number too large: SQLite would have taken it.
        raise InvalidInput(f"a value can't be kept: {postgres.said(error)}") from error
    except (DBAPIError, PoolTimeout) as error:
        if postgres.is_away(error):
            raise postgres.trouble(error) from error
        raise


def afterwards(connection: Connection, act: Callable[[], None]) -> None:
    """Have `act` called once the write transaction has ended, whichever way: others see it then."""
    connection.info[_AFTER].append(act)


def execute_each(
    connection: Connection, statement: Insert | Delete, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Execute a statement with each of the rows, of which there may be none."""
    if rows:
        connection.execute(statement, rows)


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert those of `rows` whose keys, the primary one or a unique one, are not there yet.

    In the order of their keys, so that two writers of the same rows never wait for each other.
    """
    if not rows:
        return
    names = [column.name for column in table.primary_key if column.name in rows[0]]
    ordered = sorted(rows, key=lambda row: tuple(row[name] for name in names))
    connection.execute(insert_if_new(connection, table), ordered)


def insert_if_new(connection: Connection, table: Table) -> Insert:
    """A statement that inserts rows whose keys are not there yet."""
    statement: Insert = _insert(connection.dialect.name, table).on_conflict_do_nothing()
    return statement


def put_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, of which there may be none, in place of those with the same primary keys."""
    if rows:
        connection.execute(_replacing(connection.dialect.name, table), rows)


@cache  # SQLAlchemy takes longer to build it than to run it.
def _replacing(dialect: str, table: Table) -> Insert:
    statement = _insert(dialect, table)
    others = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if not column.primary_key
    }
    replacing: Insert = statement.on_conflict_do_update(
        index_elements=list(table.primary_key), set_=others
    )
    return replacing


def _insert(dialect: str, table: Table) -> Any:
    """The dialect's own INSERT, which knows ON CONFLICT; no other dialect is imported."""
    if dialect == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Of several who open a new file, one changes its mode; SQLite lets nobody wait for that."""
    for _ in range(_MODE_TRIES):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            time.sleep(_MODE_PAUSE_S)
    connection.execute("PRAGMA journal_mode=WAL")


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(
        url, pool_size=20, max_overflow=40, connect_args={"check_same_thread": False}
    )

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout=30000")
        _write_ahead(connection)
        for pragma in ("synchronous=NORMAL", "foreign_keys=ON", _CHECKPOINT):
            connection.execute(f"PRAGMA {pragma}")

    return engine
