"""PostgreSQL: connecting, the locks of writers, what its errors mean.

Owns: the driver's options, advisory locks, whether an error says that the database is unreachable.
Leaves: transactions to db.py, which database a home has to home/home_database.py.
Always: no message holds a password; a lock is taken at the beginning of a transaction, all of a
transaction's locks at once and in one order, so that writers never wait for each other in a ring.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from torchyard.base import disk
from torchyard.base.errors import DatabaseUnreachable, InvalidInput, TorchyardError

OLDEST = 13
_POOL = 20
_CONNECT_LIMIT_S = 10
_SILENCE_LIMIT_MS = 30_000
_LOCK_LIMIT_MS = 60_000
_IDLE_LIMIT_MS = 120_000
# A process that is stopped in the middle keeps its locks so long.
_SHARED_IDLE_MS = 10_000

# Advisory locks are numbers for the whole of a database: ours have these two in front.
_WHOLE = 0x796172
_PART = 0x796173

_hold_whole = text("SELECT pg_advisory_xact_lock(:whole, 0)")
_hold_part = text(
    "SELECT pg_advisory_xact_lock_shared(:whole, 0), pg_advisory_xact_lock(:part, :name)"
)
_hold_another = text("SELECT pg_advisory_xact_lock(:part, :name)")

# A shared index that can't grow is told as an I/O error.
_SQLITE_FULL = ("SQLITE_FULL", "database or disk is full", "SQLITE_IOERR_SHMSIZE")
# SQLSTATE classes: connection, resources, operator intervention, lock not had in time.
_AWAY = ("08", "53", "57", "55P03", "25P03")
# SQLite is asked here too: its file is locked, full, broken or gone. Python 3.10 has no codes.
_SQLITE_AWAY = (
    *("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN"),
    *("database is locked", "database or disk is full", "disk I/O error", "unable to open"),
)


def engine(url: URL, shared: bool = False) -> Engine:
    """An engine whose connections notice that the server is gone, and ask again.

    Args:
        shared: other servers wait for this one's transactions.

    Raises:
        InvalidInput: the driver is not installed.
    """
    try:
        import psycopg  # noqa: F401  (SQLAlchemy imports it, and says less when it is missing)
    except ImportError as error:
        raise InvalidInput(
            "PostgreSQL's driver `psycopg` is not installed",
            "install it with `pip install 'torchyard[postgres]'`",
        ) from error
    limits = {
        "lock_timeout": _LOCK_LIMIT_MS,
        "idle_in_transaction_session_timeout": _SHARED_IDLE_MS if shared else _IDLE_LIMIT_MS,
        "tcp_keepalives_idle": _SILENCE_LIMIT_MS // 1000,
    }
    extra = url.normalized_query.get("options", ())
    options = [*extra, *(f"-c {name}={value}" for name, value in limits.items())]
    url_keys = {key for key in url.query if key != "options"}
    defaults = {
        "connect_timeout": _CONNECT_LIMIT_S,
        "tcp_user_timeout": _SILENCE_LIMIT_MS,
        "application_name": "torchyard",
        "client_encoding": "utf8",
    }
    arguments = {key: value for key, value in defaults.items() if key not in url_keys}
    plain = url.set(drivername="postgresql+psycopg").difference_update_query(["options"])
    return create_engine(
        plain,
        pool_size=_POOL,
        max_overflow=_POOL,
        pool_pre_ping=True,
        connect_args={**arguments, "options": " ".join(options)},
    )


def hold(connection: Connection, alone: Collection[str]) -> None:
    """Wait until no other writer has what this one changes: the parts `alone`; none: everything."""
    if not alone:
        connection.execute(_hold_whole, {"whole": _WHOLE})
        return
    names = sorted({_number(name) for name in alone})
    connection.execute(_hold_part, {"whole": _WHOLE, "part": _PART, "name": names[0]})
    for name in names[1:]:
        connection.execute(_hold_another, {"part": _PART, "name": name})


def _number(name: str) -> int:
    """A signed 32-bit number; two names of one number wait for each other without need."""
    return zlib.crc32(name.encode()) - 2**31


def check(connection: Connection) -> None:
    """
    Raises:
        InvalidInput: the server is too old, or the database does not keep Unicode.
    """
    number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    if number < OLDEST * 10_000:
        raise InvalidInput(
            f"the database's server is PostgreSQL {number // 10_000}, and torchyard needs "
            f"{OLDEST} or later",
            "upgrade it, or use another one",
        )
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise InvalidInput(
            f"the database's encoding is {encoding}, and torchyard needs UTF8",
            "make it with `createdb --encoding UTF8 --template template0`",
        )


def is_away(error: BaseException) -> bool:
    """Whether `error` says that the database does not answer, not that a statement is wrong."""
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return str(getattr(error.orig, "sqlite_errorname", error.orig)).startswith(_SQLITE_AWAY)
    if error.connection_invalidated or isinstance(error, InterfaceError):
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # libpq's own word, from before the server said anything
        return isinstance(error, OperationalError)
    return str(state).startswith(_AWAY)


def trouble(error: BaseException) -> DatabaseUnreachable:
    """What an error that `is_away` says to users."""
    cause = getattr(error, "orig", None)
    if isinstance(cause, sqlite3.Error):
        name = str(getattr(cause, "sqlite_errorname", cause))
        if name.startswith(_SQLITE_FULL):
            return disk.full("`torchyard.db`")
        if name.startswith(("SQLITE_IOERR", "disk I/O error")):
            return disk.failed("`torchyard.db`", name)
    elif getattr(cause, "sqlstate", None) == "53100":
        return disk.full("the database's disk")
    return away()


def away() -> DatabaseUnreachable:
    """The error for users: it does not say where the database is, which the cause may do."""
    return DatabaseUnreachable(
        "the server's database does not answer",
        "the server continues once the database is back",
    )


def refusal(url: URL, error: DBAPIError) -> TorchyardError:
    """Why a server can't start on this database."""
    why = said(error)
    return InvalidInput(f"the database `{redacted(url)}` can't be used: {why}", _hint(url, why))


def redacted(url: URL) -> str:
    """The URL without its password."""
    return without_password(url).render_as_string()


def without_password(url: URL) -> URL:
    query = {key: value for key, value in url.query.items() if "password" not in key}
    return URL.create(url.drivername, url.username, None, url.host, url.port, url.database, query)


def said(error: BaseException) -> str:
    """The first thing that the driver's error says, in one line."""
    cause: Any = getattr(error, "orig", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return lines[0].rpartition("FATAL:  ")[2] if lines else type(cause).__name__


def _hint(url: URL, why: str) -> str:
    host = url.host or "this machine"
    if "password" in why or "authentication" in why:
        return (
            "give the password in a passfile (`~/.pgpass`, or `?passfile=FILE` in the URL), or in "
            "the URL of `--database-file` (TORCHYARD_DATABASE_FILE)"
        )
    if "does not exist" in why:
        return f"make it as PostgreSQL's administrator: `createdb -O {url.username or 'user'} NAME`"
    if "resolve" in why or "Name or service" in why:
        return "see whether the host's name is right"
    return f"see whether PostgreSQL runs on {host} and takes connections there"
