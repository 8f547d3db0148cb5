"""Prove that a backup can be restored: restore it into a scratch folder, and compare.

Owns: what is compared, and noting the result in the home that was backed up.
Leaves: unpacking and checksums to archive.py, the scratch folder to scratch.py.
Always: neither the backup nor any home is changed; nothing of the restored home is left.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from torchyard.backups import actions, records, scratch
from torchyard.backups.archive import Contents, broken
from torchyard.base import sealed_columns
from torchyard.base.db import Database, metadata
from torchyard.base.errors import Conflict, InvalidInput, TorchyardError
from torchyard.base.home import backup_record, home_database
from torchyard.base.home.backup_record import Proof
from torchyard.base.home.secrets_keys import KeyRing
from torchyard.base.sealed_columns import Seal

_SHA256_DIGITS = 64


@dataclass(frozen=True)
class Result:
    """What was proved; `missing` says which secrets were not, for want of a passphrase."""

    path: str
    at: str
    made_at: str
    files: int
    size_bytes: int
    tables: int
    rows: int
    missing: list[str] = field(default_factory=list)


def prove(home: Path, source: Path, passphrase: str = "") -> Result:
    """Restore a backup beside itself, compare, and remove what was restored.

    The result is noted in `home`, if the backup is of it.

    Raises:
        InvalidInput: as `actions.restore`; `broken_backup` where something differs.
    """
    made_from: list[str] = []
    at = datetime.now(timezone.utc)
    try:
        result = _prove(source, passphrase, at, made_from)
    except TorchyardError as error:
        if error.code == "broken_backup":
            # One whose first bytes are damaged does not say what it is of.
            _note(home, made_from, Proof(str(source), at, held=False, error=error.message))
        raise
    proof = Proof(
        str(source),
        at,
        True,
        result.files,
        result.size_bytes,
        result.tables,
        result.rows,
        secrets=not result.missing,
    )
    _note(home, made_from, proof)
    return result


def _note(home: Path, made_from: list[str], proof: Proof) -> None:
    last = backup_record.read(home).backup
    if made_from == [str(home)] or (last is not None and last.path == proof.path):
        backup_record.note_proof(home, proof)


def _prove(source: Path, passphrase: str, at: datetime, made_from: list[str]) -> Result:
    if not source.exists():
        raise InvalidInput(f"`{source}` does not exist", "name a file or folder")
    try:
        with scratch.beside(source) as folder:
            home = folder / "home"
            home.mkdir(mode=0o700)
            contents = actions.unpack(source, home, lambda about: made_from.append(about.home))
            _check_blobs(source, contents)
            rows = _check_records(source, home / actions.RECORDS, contents.rows)
            missing = actions.put_secrets_back(home, source, passphrase)
            _open(source, home, has_keys=not missing)
    except OSError as error:
        raise InvalidInput(
            f"`{source}` can't be proved: {error.strerror} (`{error.filename or source.parent}`)",
            "see whether there is space for the whole of it beside it, and who may write there",
        ) from error
    return Result(
        str(source),
        at.isoformat(timespec="seconds"),
        contents.about.made_at,
        len(contents.entries),
        sum(entry.size_bytes for entry in contents.entries),
        len(rows),
        sum(rows.values()),
        missing,
    )


def _check_blobs(source: Path, contents: Contents) -> None:
    """A blob's name is its checksum: one that rotted in the home was backed up as it was."""
    for entry in contents.entries:
        path = PurePosixPath(entry.path)
        if path.parts[0] == actions.BLOBS and len(path.name) == _SHA256_DIGITS:
            if entry.sha256 != path.name:
                raise broken(source, f"`{entry.path}` was damaged in the home already")


def _check_records(source: Path, file: Path, expected: Mapping[str, int] | None) -> dict[str, int]:
    """The rows of each table, which are as many as the backup says."""
    try:
        rows, fault = records.count_rows(file), records.check(file)
    except sqlite3.Error as error:
        raise broken(source, f"its records can't be read: {error}") from error
    if fault:
        raise broken(source, f"its records are damaged: {fault}")
    before_by_table = rows if expected is None else expected
    for table in sorted({*rows, *before_by_table}):
        there, before = rows.get(table), before_by_table.get(table)
        if there != before:
            raise broken(
                source,
                f"the table `{table}` had {_count(before)} when it was backed up, "
                f"and has {_count(there)}",
            )
    return rows


def _count(rows: int | None) -> str:
    return "no rows, being absent," if rows is None else f"{rows:,} rows"


def _opens_secrets(db: Database, seal: Seal) -> bool:
    """Whether any is opened, or there are none; some may have been lost before the backup."""
    has_some = False
    with db.read() as connection:
        for table in metadata.sorted_tables:
            after: Sequence[Any] = ()
            while True:
                values, after = sealed_columns.sealed_values(connection, table, after)
                has_some = has_some or bool(values)
                if any(seal.unseal(value.text) is not None for value in values):
                    return True
                if not after:
                    break
    return not has_some


def _open(source: Path, home: Path, has_keys: bool) -> None:
    """Bring the records to today's schema, as a server does that starts with them."""
    try:
        db = records.open_file(home / actions.RECORDS)
        try:
            db.upgrade()
            records.forget_home(db)
        finally:
            db.close()
        db = home_database.open_for(home, home_database.default_url(home))
        try:
            if has_keys and not _opens_secrets(db, KeyRing(home).seal()):
                raise broken(source, "the key in it opens none of its secrets")
        finally:
            db.close()
    except Conflict as error:
        raise broken(source, error.message) from error
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).partition("\n")[0]
        raise broken(source, f"its records can't be opened: {reason}") from error
