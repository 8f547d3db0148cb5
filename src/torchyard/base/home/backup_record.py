"""What a home knows of its backups: the last one, the last proof, the last of its schedule.

Owns: the file `backups.json` in the home.
Leaves: making and proving backups to backups/, showing them to the command line and /metrics.
Always: the file is complete or absent; a backup does not contain it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from torchyard.base.errors import TorchyardError
from torchyard.base.files import write_atomically
from torchyard.shared import locks

_log = logging.getLogger(__name__)
FILE = "backups.json"
_LOCK = "backups.lock"
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class Backup:
    """One that was written; `at` is the instant of its records."""

    path: str
    at: datetime
    files: int
    size_bytes: int


@dataclass(frozen=True)
class Proof:
    """A backup that was restored and compared; `error` says what differs if it did not hold."""

    path: str
    at: datetime
    held: bool
    files: int = 0
    size_bytes: int = 0
    tables: int = 0
    rows: int = 0
    secrets: bool = False
    error: str = ""


@dataclass(frozen=True)
class Scheduled:
    """The server's own last try; `error` says why it made no backup, or could not prove it."""

    at: datetime
    error: str = ""


@dataclass(frozen=True)
class Record:
    backup: Backup | None = None
    proof: Proof | None = None
    scheduled: Scheduled | None = None

    def to_json(self) -> dict[str, Any]:
        """Without what there has not been yet."""
        return {
            name: {**part, "at": part["at"].isoformat(timespec="seconds")}
            for name, part in asdict(self).items()
            if part
        }


def read(home: Path) -> Record:
    """Nothing is known where the file is absent, damaged, or another user's."""
    try:
        document = json.loads((home / FILE).read_bytes())
        return Record(
            _part(document, "backup", Backup),
            _part(document, "proof", Proof),
            _part(document, "scheduled", Scheduled),
        )
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return Record()


def note_backup(home: Path, backup: Backup) -> None:
    _change(home, lambda record: replace(record, backup=backup))


def note_proof(home: Path, proof: Proof) -> None:
    _change(home, lambda record: replace(record, proof=proof))


def note_scheduled(home: Path, scheduled: Scheduled) -> None:
    _change(home, lambda record: replace(record, scheduled=scheduled))


def _change(home: Path, change: Callable[[Record], Record]) -> None:
    """A backup is none the worse for a home that can't be written, as on a full disk."""
    try:
        with locks.hold(home / _LOCK):
            with write_atomically(home / FILE, mode=0o600) as writing:
                writing.write(json.dumps(change(read(home)).to_json(), indent=1).encode() + b"\n")
        if os.geteuid() == 0:
            owner = home.stat()
            for name in (FILE, _LOCK):
                os.chown(home / name, owner.st_uid, owner.st_gid, follow_symlinks=False)
    except (OSError, TorchyardError) as error:
        _log.warning("`%s` could not be written: %s", home / FILE, error)


def _part(document: Mapping[str, Any], name: str, form: Callable[..., _Part]) -> _Part | None:
    part = document.get(name)
    return form(**{**part, "at": datetime.fromisoformat(part["at"])}) if part else None
