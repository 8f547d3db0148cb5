"""The keys for this home's signatures.

Owns: one secret in the home, and a key derived from it for each purpose.
Leaves: what is signed, and for how long, to the callers; sealing to secrets_keys.py.
Always: servers that share a home have one secret, however many start at once; a key for one purpose
reveals nothing about the others.
"""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

FILE = "signing.key"


def key(home: Path, purpose: str) -> bytes:
    """The 32-byte key for that purpose, of a secret that is kept in a file of the home."""
    return hmac.digest(_secret(home / FILE), purpose.encode(), "sha256")


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
