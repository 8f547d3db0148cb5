"""One-use links to services, and the cookies that they are exchanged for.

Owns: codes and sessions: who has them, for which service, until when.
Leaves: checking who may have one to running_services.py, HTTP to proxy.py.
Always: only hashes are kept; a code is good once and for a minute; a session is good for one
service, and no longer than the token that its link was asked for with.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

_CODE_LIFE = timedelta(seconds=60)
_SESSION_LIFE = timedelta(hours=12)
_MOST = 10_000


@dataclass(frozen=True)
class Holder:
    """Which token's holder a code or session is for, and which service, by its label."""

    token_hash: str
    label: str


class Links(Protocol):
    """Codes and sessions of services."""

    def code(self, holder: Holder) -> str: ...
    def exchange(self, code: str, label: str) -> str | None: ...
    def holder(self, session: str, label: str) -> Holder | None: ...


class MemoryLinks:
    """Those of this server's process: a restart ends them, and people open another link."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._codes: dict[str, tuple[Holder, datetime]] = {}
        self._sessions: dict[str, tuple[Holder, datetime]] = {}

    def code(self, holder: Holder) -> str:
        """A new code."""
        return self._add(self._codes, holder, _CODE_LIFE)

    def exchange(self, code: str, label: str) -> str | None:
        """A session for a code; the code is gone. None if it is not good for this service."""
        entry = self._codes.pop(_hash(code), None)
        if entry is None or entry[0].label != label or entry[1] <= self._now():
            return None
        return self._add(self._sessions, entry[0], _SESSION_LIFE)

    def holder(self, session: str, label: str) -> Holder | None:
        """Who has the session; None if it is not good for this service."""
        entry = self._sessions.get(_hash(session))
        if entry is None or entry[0].label != label or entry[1] <= self._now():
            return None
        return entry[0]

    def _add(
        self, entries: dict[str, tuple[Holder, datetime]], holder: Holder, life: timedelta
    ) -> str:
        now = self._now()
        if len(entries) >= _MOST:
            for key in [key for key, (_, until) in entries.items() if until <= now]:
                del entries[key]
        while len(entries) >= _MOST:
            del entries[next(iter(entries))]
        secret = secrets.token_urlsafe(32)
        entries[_hash(secret)] = holder, now + life
        return secret


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
