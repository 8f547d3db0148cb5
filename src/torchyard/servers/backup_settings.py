"""The file that `yard-server --backups` names: where and how often the server backs itself up.

Owns: its keys and their checks.
Leaves: making backups to backups/, when one is due to backups/keeper.py.
Always: a wrong file keeps the server from starting; it does not wait for the first backup.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.base import fields
from torchyard.base.errors import InvalidInput
from torchyard.base.home.passphrases import passphrase_in

_KEYS = ("folder", "days", "keep", "passphrase_file")
_DAYS, _KEEP = 7, 4
_GUIDE = "see the guide `upgrade`"


@dataclass(frozen=True)
class BackupSettings:
    """A backup into `folder` each so many days, of which the newest `keep` are kept."""

    folder: Path
    days: int = _DAYS
    keep: int = _KEEP
    passphrase_file: Path | None = None
    file: Path | None = None
    secrets_key: str = field(default="", repr=False)

    @property
    def files(self) -> list[Path]:
        """What jobs must not see."""
        return [each for each in (self.file, self.passphrase_file, self.folder) if each is not None]


def read(file: Path | None, home: Path, secrets_key: str = "") -> BackupSettings | None:
    """
    Args:
        file: None for a server that makes no backups by itself.
        secrets_key: of the records, where the server got it by its environment.

    Raises:
        InvalidInput: the file can't be read, a key or value is wrong, or the folder is no good.
    """
    if file is None:
        return None
    body = fields.settings_in(file, _KEYS, _GUIDE)
    passphrase_file = fields.text(body, "passphrase_file")
    settings = BackupSettings(
        _folder(file, fields.text(body, "folder"), home),
        fields.count(body, "days", default=_DAYS, least=1),
        fields.count(body, "keep", default=_KEEP, least=1),
        file.parent / passphrase_file if passphrase_file else None,
        file,
        secrets_key,
    )
    passphrase_in(settings.passphrase_file)
    return settings


def _folder(file: Path, name: str, home: Path) -> Path:
    if not name:
        raise InvalidInput(f"`{file}` has no `folder`", _GUIDE, at=["folder"])
    folder = file.parent / name
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidInput(
            f"`folder` `{folder}` is not a folder that the server can write to",
            "make it, and give it to the server's user: `install -d -m 0700 -o USER FOLDER`",
            at=["folder"],
        )
    if folder.resolve().is_relative_to(home.resolve()):
        raise InvalidInput(
            f"`folder` `{folder}` is inside the home folder that is backed up",
            "name one on another disk",
            at=["folder"],
        )
    return folder
