"""Files with a secret, which nobody but the server reads.

Owns: reading them, refusing those that others can read.
Leaves: what is in them to home_database.py, passphrases.py and secrets_keys.py.
Always: what was checked is what is read.
"""

from __future__ import annotations

import os
from pathlib import Path

from torchyard.base.errors import InvalidInput


def read(file: Path, what: str, hint: str, of_service: bool = True) -> bytes:
    """
    Args:
        what: the file, in words.
        hint: for a file that can't be read.
        of_service: a group may read it where root owns it, as systemd hands out credentials, and as
            it is usual in /etc.

    Raises:
        InvalidInput: it can't be read, or others can read it.
    """
    try:
        with open(file, "rb") as opened:
            status, content = os.fstat(opened.fileno()), opened.read()
    except OSError as error:
        raise InvalidInput(f"{what}, `{file}`, can't be read: {error.strerror}", hint) from error
    has_group = of_service and status.st_uid == 0
    if status.st_mode & (0o027 if has_group else 0o077):
        raise InvalidInput(
            f"others can read {what}, `{file}` (mode {status.st_mode & 0o777:04o})",
            f"type `chmod {'0640' if has_group else '0600'} {file}`",
        )
    return content


def read_text(file: Path, what: str, hint: str, of_service: bool = True) -> str:
    """As `read`, of a text without the white space around it."""
    try:
        return read(file, what, hint, of_service).decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{what}, `{file}`, can't be read: it is not text", hint) from error
