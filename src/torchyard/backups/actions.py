"""Back a home folder up while its server runs, and make one again from that.

Owns: what belongs to a backup, the order in which it is taken and brought back.
Leaves: rows to records.py, files to archive.py, which database a home has to base/.
Always: the records are taken first, so that every file they name is there to be taken after them;
a home is restored whole, or it is as empty as before.
"""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from sqlalchemy.engine import URL

import torchyard
from torchyard.backups import archive, records, scratch
from torchyard.backups import secrets as secret_parts
from torchyard.backups.archive import About
from torchyard.base.db import SCHEMA_VERSION, refuse_development, refuse_newer
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.home import backup_record, hold, home_database, secrets_keys
from torchyard.base.home.backup_record import Backup
from torchyard.base.home.secrets_keys import NOT_GIVEN, Given, KeyRing
from torchyard.shared import locks

RECORDS = "torchyard.db"
BLOBS = "blobs"
# Environments are built again, caches filled again; a token is made when the server starts.
_FOLDERS = ("datastores", "logs", "audit")


@dataclass(frozen=True)
class Result:
    """What was backed up or restored; `schema` is the version of the records.

    `missing` says which secrets are not in it.
    """

    path: str
    files: int
    size_bytes: int
    schema: str
    missing: list[str] = field(default_factory=list)


def backup(
    home: Path, database: str, target: Path, passphrase: str = "", given: Given = NOT_GIVEN
) -> Result:
    """Write the records and files of a home into a new file or folder.

    Args:
        database: its URL; empty for the one that the home had last.
        target: a tar file by its ending, else a folder.
        passphrase: encrypts the secrets, which are left out without one.
        given: the key of the secrets in the records, where that comes from outside the home.

    Raises:
        InvalidInput: there is no home, its database can't be used, or the key is missing.
        Conflict: there is something at `target`.
    """
    url = home_database.chosen(home, database)
    if url == home_database.default_url(home) and not (home / RECORDS).exists():
        raise InvalidInput(
            f"`{home}` is not a torchyard home folder", "set TORCHYARD_HOME to the right one"
        )
    if target.resolve().is_relative_to(home.resolve()):
        raise InvalidInput(
            f"`{target}` lies in the home folder that is backed up", "name a place outside"
        )
    db = home_database.connect(url)
    try:
        home_database.check_pair(db, home, url)
        target.parent.mkdir(parents=True, exist_ok=True)
        ring = KeyRing(home, given)
        with scratch.beside(target) as folder:
            copy = folder / RECORDS
            # One that is replaced meanwhile still opens what was copied before.
            keys_before = _sealing_keys(ring, passphrase)
            saved = records.save(db, copy)
            keys = [*_sealing_keys(ring, passphrase), *keys_before]
            with db.read() as connection:
                secrets = secret_parts.read(connection, home, list(dict.fromkeys(keys)))
            described = folder / secret_parts.FILE
            described.write_bytes(secret_parts.to_json(secrets, passphrase))
            made_at = datetime.now(timezone.utc)
            about = About(
                archive.FORMAT,
                torchyard.__version__,
                saved.schema,
                made_at.isoformat(timespec="seconds"),
                str(home),
            )
            with archive.writing(target, about, folder) as writer:
                writer.rows = saved.rows
                writer.add(RECORDS, copy)
                writer.add(secret_parts.FILE, described)
                for path, known_sha256 in _files(home):
                    writer.add(path, home / path, known_sha256)
            entries = writer.entries
    finally:
        db.close()
    size_bytes = sum(entry.size_bytes for entry in entries)
    backup_record.note_backup(home, Backup(str(target), made_at, len(entries), size_bytes))
    missing = [] if passphrase else secrets.names
    return Result(str(target), len(entries), size_bytes, saved.schema, missing)


def _sealing_keys(ring: KeyRing, passphrase: str) -> list[bytes]:
    """Those that a backup has to have: none without a passphrase, and none that the home lacks."""
    state = ring.state()
    if not passphrase or (state is None and not (ring.home / secrets_keys.FILE_IN_HOME).exists()):
        return []
    return ring.secrets()


def restore(home: Path, database: str, source: Path, passphrase: str = "") -> Result:
    """Make a home from a backup, which is held: see base/home/hold.py.

    Args:
        database: where the records go; empty for a file in the home.
        passphrase: the one that the secrets were encrypted with; they are missing without it.

    Raises:
        InvalidInput: what is at `source` is not a complete backup, or the passphrase is wrong.
        Conflict: the home or the database is not empty, a server serves it, or the backup is newer
            than this torchyard.
    """
    _check_empty(home)
    default = home_database.default_url(home)
    url = home_database.read_url(database) if database else default
    home.parent.mkdir(parents=True, exist_ok=True)
    unfinished = home.with_name(f".{home.name}.{secrets.token_hex(4)}.part")
    unfinished.mkdir(mode=0o700)
    try:
        entries = unpack(source, unfinished).entries
        saved = unfinished / RECORDS
        missing = put_secrets_back(unfinished, source, passphrase)
        hold.hold(unfinished, source)
        if url == default:
            opened = records.open_file(saved)
            try:
                opened.upgrade()
                records.forget_home(opened)
            finally:
                opened.close()
            _move(unfinished, home)
        else:
            _load(saved, url, home, unfinished)
    except BaseException:
        archive.remove(unfinished)
        raise
    secrets_keys.move_beside(home)
    size_bytes = sum(entry.size_bytes for entry in entries)
    return Result(str(home), len(entries), size_bytes, SCHEMA_VERSION, missing)


def unpack(
    source: Path, folder: Path, on_about: Callable[[About], None] = lambda about: None
) -> archive.Contents:
    """Bring the files of a backup, which has records, into an empty folder.

    Args:
        on_about: called with what the backup says of itself, before anything is unpacked.

    Raises:
        InvalidInput, Conflict: as `restore`.
    """

    def accept(about: About) -> None:
        on_about(about)
        refuse_development(about.schema, f"the backup `{source}`")
        refuse_newer(about.schema)

    contents = archive.unpack(source, folder, accept)
    if not (folder / RECORDS).exists():
        raise archive.broken(source, f"`{RECORDS}` is missing")
    return contents


def put_secrets_back(unfinished: Path, source: Path, passphrase: str) -> list[str]:
    """Write the keys that a backup has into the home that is made of it.

    Returns what is missing after it.

    Raises:
        InvalidInput: the passphrase is wrong, or the secrets are damaged.
    """
    file = unfinished / secret_parts.FILE
    if not file.exists():
        raise archive.broken(source, f"`{secret_parts.FILE}` is missing")
    secrets, names = secret_parts.from_json(file.read_bytes(), passphrase, source)
    file.unlink()
    if secrets is None:
        return names
    secret_parts.put_back(unfinished, secrets)
    return []


def _load(saved: Path, url: URL, home: Path, unfinished: Path) -> None:
    db = home_database.connect(url)
    try:
        mark = uuid.uuid4().hex
        with records.loading(saved, db) as connection:
            home_database.mark_as(connection, mark, home)
            saved.unlink()
            home_database.remember(unfinished, url, mark)
            # The last thing before the records are there for good: either both are, or none.
            _move(unfinished, home)
    except BaseException:
        if (home / "database.json").exists():
            os.rename(home, unfinished)
        raise
    finally:
        db.close()


def _files(home: Path) -> Iterator[tuple[str, str]]:
    """Every file as (path below the home, its sha256 if that is known), sorted."""
    for root, folders, names in os.walk(home / BLOBS):
        folders.sort()
        for name in sorted(names):
            if not name.startswith("."):
                yield (Path(root) / name).relative_to(home).as_posix(), name
    for folder in _FOLDERS:
        for root, folders, names in os.walk(home / folder):
            folders.sort()
            for name in sorted(names):
                path = Path(root) / name
                unfinished = name.startswith(".") and name.endswith(".part")
                if not unfinished and path.is_file() and not path.is_symlink():
                    yield path.relative_to(home).as_posix(), ""
    # What was said while environments were built, and what was put into them.
    for path in sorted((home / "environments").glob("*.*")):
        if path.is_file() and not path.name.startswith("."):
            yield path.relative_to(home).as_posix(), ""


def _check_empty(home: Path) -> None:
    lock = home / "served.lock"
    if lock.exists():
        with open(lock, "rb") as lock_file:
            if not locks.try_lock(lock_file):
                raise Conflict(
                    f"a server serves `{home}`",
                    "restore into a new folder: set TORCHYARD_HOME to it",
                    code="served",
                )
    if home.exists() and any(home.iterdir()):
        raise Conflict(
            f"the home folder `{home}` is not empty",
            "restore into a new folder: set TORCHYARD_HOME to it",
            code="not_empty",
        )


def _move(unfinished: Path, home: Path) -> None:
    """The home appears whole; an empty folder of that name is replaced."""
    os.rename(unfinished, home)
