"""The keys for this home's signatures, and for the secrets in its records.

Owns: one secret in the home for each of both, and a key derived from it for each purpose.
Leaves: what is signed, and for how long, to the callers; what is sealed to sealed_columns.py.
Always: servers that share a home have one secret, however many start at once; a key for one purpose
reveals nothing about the others.
"""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from torchyard.base.sealed_columns import Seal

FILE = "signing.key"
SEALING_FILE = "secrets.key"


def key(home: Path, purpose: str, file: str = FILE) -> bytes:
    """The 32-byte key for that purpose, of a secret that is kept in a file of the home."""
    return hmac.digest(_secret(home / file), purpose.encode(), "sha256")


def seal(home: Path) -> Seal:
    """Of the secrets in a home's records."""
    return Seal(lambda: key(home, "records", SEALING_FILE))


def _secret(file: Path) -> bytes:
    if not file.exists():
        draft = file.with_name(f".{file.name}.{secrets.token_hex(6)}.part")
        with open(draft, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
            opened.write(secrets.token_bytes(32))
        # Unlike a rename, a link does not replace a file that another server has just written.
        with suppress(FileExistsError):
            os.link(draft, file)
        draft.unlink()
    return file.read_bytes()
