"""Which database a home folder keeps its records in.

Owns: what `--database` and the file of `--database-file` may say, `database.json` in the home, the
mark of the home in the database.
Leaves: transactions and the schema to db.py, PostgreSQL's own ways to postgres.py.
Always: a home has one database and a database one home; a password is never written down.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from sqlalchemy import Column, Connection, String, Table, Text, insert, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from torchyard.base import disk, postgres
from torchyard.base.db import Database, Instant, metadata
from torchyard.base.errors import Conflict, InvalidInput, TorchyardError
from torchyard.base.files import write_atomically
from torchyard.base.home import private_files
from torchyard.base.home.secrets_keys import NOT_GIVEN, Given, KeyRing
from torchyard.base.sealed_columns import Seal

installation = Table(
    "installation",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("home", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
)

_FILE_NAME = "database.file"
_FORMS = "write `postgresql://user@host/name` or `sqlite:////folder/file.db`"


@dataclass(frozen=True)
class _Remembered:
    """What `database.json` says."""

    url: URL
    id: str


def read_url(text: str) -> URL:
    """The URL of a database.

    Raises:
        InvalidInput: it is none, or of another kind.
    """
    try:
        url = make_url(text)
        kind = url.get_backend_name()
    except (ArgumentError, ValueError):
        # What can't be read can't be shown: somewhere in it may be a password.
        raise InvalidInput("the database's URL can't be read", _FORMS) from None
    if kind == "postgres":
        url, kind = url.set(drivername="postgresql"), "postgresql"
    if kind == "postgresql":
        if not url.database:
            raise InvalidInput(
                f"`{postgres.redacted(url)}` names no database", "write it behind the host: `/name`"
            )
        return url.set(drivername="postgresql")
    if kind != "sqlite":
        raise InvalidInput(f"torchyard does not know databases of the kind `{kind}`", _FORMS)
    if not url.database or not Path(url.database).is_absolute():
        raise InvalidInput(
            f"`{text}` names no file by its whole path", "write `sqlite:////folder/file.db`"
        )
    return url


def refuse_password(text: str) -> None:
    """
    Raises:
        InvalidInput: this URL, which was given as an argument, holds a password.
    """
    url = read_url(text)
    if url.password is not None or any("password" in key for key in url.query):
        raise InvalidInput(
            "`--database` holds a password, and everyone on this machine can read arguments",
            "put the URL into a file of mode 0600 and name it with `--database-file`, or the "
            "password into `~/.pgpass`",
        )


@dataclass(frozen=True)
class Choice:
    """Which database was asked for; a `url` counts before a `file` that holds one.

    `password` is for a URL of PostgreSQL without one.
    """

    url: str = ""
    file: Path | None = None
    password: str = field(default="", repr=False)


def resolve(home: Path, choice: Choice) -> str:
    """The URL with its password, or empty for the one that the home had last.

    The file that the home's URL was last read from is read again.

    Raises:
        InvalidInput: the file can't be read, or others can read it.
    """
    text = choice.url
    if not text:
        file = choice.file or _remembered_file(home)
        text = _url_in(file) if file is not None else ""
    if not choice.password:
        return text
    url = chosen(home, text)
    if url.get_backend_name() != "postgresql" or url.password is not None:
        return text
    return url.set(password=choice.password).render_as_string(hide_password=False)


def _url_in(file: Path) -> str:
    text = private_files.read_text(
        file,
        "the file of the database's URL",
        "run this as the server's user or as root; or name another file with "
        "TORCHYARD_DATABASE_FILE",
    )
    if not text or "\n" in text:
        raise InvalidInput(f"`{file}` does not hold one line with a URL", _FORMS)
    return text


def remember_file(home: Path, file: Path | None) -> None:
    """Say in the home where the URL and its password are read from, for backups."""
    path = home / _FILE_NAME
    if file is None:
        path.unlink(missing_ok=True)
        return
    with write_atomically(path, mode=0o600) as writing:
        writing.write(f"{file}\n".encode())


def _remembered_file(home: Path) -> Path | None:
    try:
        return Path((home / _FILE_NAME).read_text().strip())
    except FileNotFoundError:
        return None


def default_url(home: Path) -> URL:
    return URL.create("sqlite", database=str(home / "torchyard.db"))


def chosen(home: Path, url: str) -> URL:
    """What was asked for, else what the home had last, else a file in it.

    Raises:
        InvalidInput: no URL of a database.
    """
    if url:
        return read_url(url)
    remembered = _remembered(home)
    return remembered.url if remembered else default_url(home)


def open_for(home: Path, url: URL, shared: bool = False, given: Given = NOT_GIVEN) -> Database:
    """The database of this home, with the schema of today.

    Args:
        shared: as `Database` has it.
        given: the key of its secrets, where that comes from outside.

    Raises:
        InvalidInput: it can't be reached or used, in the words of the database; or the key of its
            secrets is missing or another one.
        Conflict: it belongs to another home, or the home to another database, or its schema is
            newer than this torchyard or from before 0.1.0.
    """
    ring = KeyRing(home, given)
    db = connect(url, shared, ring.seal())
    try:
        check_pair(db, home, url)
        ring.ensure()
        db.upgrade()
        _pair(db, home, url)
    except BaseException:
        db.close()
        raise
    return db


def connect(url: URL, shared: bool = False, seal: Seal | None = None) -> Database:
    """A database that answers and is good for torchyard; its schema is as it was.

    Args:
        shared, seal: as `Database` has them.

    Raises:
        InvalidInput: as `open_for`.
    """
    if url.get_backend_name() == "sqlite":
        _keep_private(Path(url.database or ""))
    db = Database(url, shared, seal)
    try:
        with db.engine.connect() as connection:
            if url.get_backend_name() == "postgresql":
                postgres.check(connection)
            else:
                connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")
    except DBAPIError as error:
        db.close()
        raise _refused(url, error) from error
    except BaseException:
        db.close()
        raise
    return db


def _keep_private(file: Path) -> None:
    """Jobs' secrets are in it: its owner alone reads it, in whatever home and with whatever umask.

    SQLite gives the files that it puts beside it the same mode.
    """
    with suppress(OSError):  # what is wrong with it, opening it says
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for path in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
            if path.exists() and path.stat().st_mode & 0o077:
                path.chmod(0o600)


def _refused(url: URL, error: DBAPIError) -> TorchyardError:
    if url.get_backend_name() == "postgresql":
        return postgres.refusal(url, error)
    file = Path(url.database or "")
    # SQLite needs room for the file that its readers share, and calls the lack an I/O error.
    if disk.is_full(file.parent):
        return disk.full(f"`{file.name}`")
    return InvalidInput(
        f"the database `{url.database}` can't be used: {postgres.said(error)}",
        "see whether the file is whole and its folder is there, with space and rights to write",
    )


def check_pair(db: Database, home: Path, url: URL) -> None:
    """
    Raises:
        Conflict: the database belongs to another home, or the home to another database.
    """
    remembered = _remembered(home)
    with db.read() as connection:
        owner = _owner(connection)
    if remembered is None and owner is None:
        own_file = default_url(home)
        if url != own_file and Path(str(own_file.database)).exists():
            raise _elsewhere(home, own_file)
    elif owner is None:
        assert remembered is not None
        raise _elsewhere(home, remembered.url)
    elif remembered is None or remembered.id != owner[0]:
        raise Conflict(
            f"the database `{postgres.redacted(url)}` belongs to the home `{owner[1]}` of "
            f"`{owner[2]}`",
            "give each home a database of its own; to move a home, use `yard server backup` and "
            "`yard server restore`",
            code="foreign_database",
        )


def _elsewhere(home: Path, url: URL) -> Conflict:
    return Conflict(
        f"the home `{home}` has its records in `{postgres.redacted(url)}`",
        "to move them, use `yard server backup`, then `yard server restore --database URL` into "
        "another home",
        code="records_elsewhere",
    )


def _pair(db: Database, home: Path, url: URL) -> None:
    """Write each other's mark down, unless both are there."""
    remembered = _remembered(home)
    if url == default_url(home):
        return
    mark = remembered.id if remembered else uuid.uuid4().hex
    with db.write() as connection:
        if _owner(connection) is None:
            mark_as(connection, mark, home)
    # Behind the commit: a home without a mark in the database could never be opened.
    remember(home, url, mark)


def mark_as(connection: Connection, mark: str, home: Path) -> None:
    """Say in the database which home it belongs to."""
    connection.execute(
        insert(installation).values(
            id=mark, home=str(home), host=socket.gethostname(), created_at=_now()
        )
    )


def remember(home: Path, url: URL, mark: str) -> None:
    """Say in the home which database it has."""
    body = {"url": postgres.redacted(url), "id": mark}
    with write_atomically(home / "database.json", mode=0o600) as writing:
        writing.write(json.dumps(body, indent=1).encode() + b"\n")


def _remembered(home: Path) -> _Remembered | None:
    try:
        body = json.loads((home / "database.json").read_bytes())
        return _Remembered(read_url(body["url"]), str(body["id"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, InvalidInput) as error:
        raise InvalidInput(
            f"`{home / 'database.json'}` can't be read", "bring it back from a backup of the home"
        ) from error


def _owner(connection: Connection) -> tuple[str, str, str] | None:
    if not connection.dialect.has_table(connection, installation.name):
        return None
    row = connection.execute(
        select(installation.c.id, installation.c.home, installation.c.host)
    ).first()
    return None if row is None else (row.id, row.home, row.host)


def _now() -> datetime:
    return datetime.now(timezone.utc)
