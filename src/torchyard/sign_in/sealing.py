"""What the server hands out during a sign-in and gets back, sealed.

Owns: sealing a small record, and opening it within its time.
Leaves: what is in it to routes.py.
Always: the server keeps nothing of a sign-in that has begun, so any server of the home can go on
with it, after a restart, too; nobody else can read or make a sealed record.

Source: https://github.com/fernet/spec (AES-128-CBC and HMAC-SHA256)
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchyard.base.clock import Clock
from torchyard.base.errors import NotAuthenticated
from torchyard.base.home import signing

_PURPOSE = "sign-in"
MOST_LENGTH = 4096


class Seal:
    """The seal of one home."""

    def __init__(self, home: Path, clock: Clock) -> None:
        from cryptography.fernet import Fernet

        self._fernet = Fernet(base64.urlsafe_b64encode(signing.key(home, _PURPOSE)))
        self._clock = clock

    def close(self, kind: str, record: Mapping[str, Any]) -> str:
        body = json.dumps({"kind": kind, **record}).encode()
        return self._fernet.encrypt_at_time(body, self._now_s()).decode()

    def open(self, kind: str, text: str, limit_s: int) -> Mapping[str, Any]:
        """
        Raises:
            NotAuthenticated: it is not this server's, of another kind, or too old.
        """
        from cryptography.fernet import InvalidToken

        try:
            if len(text) > MOST_LENGTH:
                raise InvalidToken
            body = self._fernet.decrypt_at_time(text.encode(), limit_s, self._now_s())
            record: Mapping[str, Any] = json.loads(body)
            if record.get("kind") != kind:
                raise InvalidToken
        except InvalidToken as error:
            raise NotAuthenticated(
                "this sign-in is too old, or was not begun at this server",
                "sign in again with `yard login`",
                code="sign_in_expired",
            ) from error
        return record

    def _now_s(self) -> int:
        return int(self._clock.now().timestamp())
