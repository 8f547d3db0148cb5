"""Workspaces by their names in any case, as Azure takes them.

Owns: the spelling that a name has here, kept for a moment, as clients ask many times a second.
Leaves: whether there is such a workspace, and who may ask it, to access.py.
Always: a name that is not known is not changed; one made or deleted elsewhere counts within
`KEPT_S`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torchyard.base.db import Database
from torchyard.base.errors import DatabaseUnreachable
from torchyard.workspaces import actions

KEPT_S = 1.0


class Spellings:
    """Of one server process; safe for several threads."""

    def __init__(self, db: Database, now_s: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._now_s = now_s
        self._kept: tuple[float, dict[str, str]] = (0.0, {})

    def kept(self, name: str) -> str | None:
        """The spelling, where it was looked up a moment ago; asks no database."""
        until_s, names = self._kept
        return names.get(name.lower()) if self._now_s() < until_s else None

    def look_up(self, name: str) -> str:
        """The spelling; the name itself when there is no such workspace, or no database answers."""
        try:
            names = {
                workspace.name.lower(): workspace.name for workspace in actions.list_all(self._db)
            }
        except DatabaseUnreachable:
            return name
        self._kept = (self._now_s() + KEPT_S, names)
        return names.get(name.lower(), name)
