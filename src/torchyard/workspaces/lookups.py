"""A cache of authenticated tokens, and of the workspaces that requests name.

Owns: keeping a lookup for a second, as scripts send many requests a second with one token.
Leaves: whether the token has expired to actions.py, which checks it each time.
Always: what this process revokes or changes takes effect at once; what another server of the same
database changes takes effect within `KEPT_S`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torchyard.workspaces.store import Changes, StoredToken

KEPT_S = 1.0
_MOST = 10_000


class Lookups:
    """Of one server process; safe for several threads."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._cache: dict[tuple[str, str], tuple[int, float, StoredToken]] = {}
        self._workspaces: dict[str, tuple[int, float]] = {}

    def get(self, token_hash: str, workspace: str) -> StoredToken | None:
        entry = self._cache.get((token_hash, workspace))
        if entry is None:
            return None
        count, until_s, token = entry
        return token if count == Changes.count and self._now_s() < until_s else None

    def keep(self, token_hash: str, workspace: str, token: StoredToken, count: int) -> None:
        """
        Args:
            count: `Changes.count` from before the lookup.
        """
        if len(self._cache) >= _MOST:
            self._cache.clear()
        self._cache[token_hash, workspace] = (count, self._now_s() + KEPT_S, token)

    def has_workspace(self, name: str) -> bool:
        """Whether the workspace is known to exist."""
        count, until_s = self._workspaces.get(name, (-1, 0.0))
        return count == Changes.count and self._now_s() < until_s

    def keep_workspace(self, name: str, count: int) -> None:
        """
        Args:
            count: as of `keep`.
        """
        if len(self._workspaces) >= _MOST:
            self._workspaces.clear()
        self._workspaces[name] = (count, self._now_s() + KEPT_S)
