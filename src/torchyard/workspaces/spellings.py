"""Case-insensitive names of workspaces, as Azure accepts them.

Owns: a name's spelling here, cached briefly, as clients ask many times a second.
Leaves: whether the workspace exists, and access to it, to access.py.
Always: an unknown name is not changed; workspaces created or deleted elsewhere are noticed within
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
        self._cache: tuple[float, dict[str, str]] = (0.0, {})

    def find_cached(self, name: str) -> str | None:
        """The spelling, if it is cached; does not ask the database."""
        until_s, names = self._cache
        return names.get(name.lower()) if self._now_s() < until_s else None

    def look_up(self, name: str) -> str:
        """The spelling; the name itself if there is no such workspace or no database."""
        try:
            names = {
                workspace.name.lower(): workspace.name for workspace in actions.list_all(self._db)
            }
        except DatabaseUnreachable:
            return name
        self._cache = (self._now_s() + KEPT_S, names)
        return names.get(name.lower(), name)
