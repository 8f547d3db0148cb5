"""The database: one place that knows which one it is.

Owns: connections, transactions, column types, the schema's version.
Leaves: tables and queries to each room's `store`.
Always: a write transaction holds the database from its first statement, so it never has to be
tried again half-way; no transaction is open while the network is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import BigInteger, Connection, Engine, MetaData, create_engine, event, text
from sqlalchemy.engine import Dialect, make_url
from sqlalchemy.types import TypeDecorator

SCHEMA_VERSION = "0001"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


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
        url: an SQLAlchemy URL, `sqlite:////path/file.db` or `postgresql+psycopg://…`.
    """

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        self._writing = self._engine.execution_options(writes=True)

    @property
    def engine(self) -> Engine:
        return self._engine

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads: one consistent view."""
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write; committed at the end, rolled back on an error."""
        with self._writing.begin() as connection:
            yield connection

    def upgrade(self) -> None:
        """Bring the schema to `SCHEMA_VERSION`; Alembic is imported only when it is behind."""
        if self._schema_version() == SCHEMA_VERSION:
            return
        from torchyard.base.migrations import run

        run.upgrade(self._engine, SCHEMA_VERSION)

    def _schema_version(self) -> str | None:
        with self.read() as connection:
            if not self._engine.dialect.has_table(connection, "alembic_version"):
                return None
            return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()

    def close(self) -> None:
        self._engine.dispose()


def _engine(url: str) -> Engine:
    if make_url(url).get_backend_name() != "sqlite":
        return create_engine(url, pool_size=20, pool_pre_ping=True)
    engine = create_engine(
        url, pool_size=20, max_overflow=40, connect_args={"check_same_thread": False}
    )

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None
        for pragma in (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "busy_timeout=30000",
            "foreign_keys=ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
