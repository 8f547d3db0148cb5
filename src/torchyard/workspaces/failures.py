"""Rate limit for wrong tokens.

Owns: counting failures by address (of IPv6, by /64), the answer to those that fail too often, which
leaves no line in the audit.
Leaves: whether a token is valid to actions.py, a request's address to uvicorn.
Always: a valid token is not affected by failures from its address; memory is bounded.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from torchyard.base import addresses
from torchyard.base.errors import NotAuthenticated, TooManyRequests

MOST_FAILURES = 200
WINDOW = timedelta(minutes=1)
_MOST_KEPT = 10_000
_WRONG_KEPT_S = 1.0


class Failures:
    """Of one server process; safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By address: when its window began, and how many failures are in it.
        self._failed: OrderedDict[str, tuple[datetime, int]] = OrderedDict()
        # By a token's hash: until when it is known to be wrong.
        self._wrong: dict[bytes, float] = {}

    @contextmanager
    def watched(self, address: str, now: datetime) -> Iterator[None]:
        """Wraps the lookup of a token, which raises NotAuthenticated if the token is not valid.

        A token is looked up however often its address has failed: it may be that of somebody else
        behind the same address.

        Raises:
            TooManyRequests: the token is not valid, and neither were too many others that came
                from the address within the last minute.
        """
        client = addresses.client_of(address)
        try:
            yield
        except NotAuthenticated as error:
            with self._lock:
                count = self._count(client, now)
                if count < MOST_FAILURES:
                    since = self._failed.pop(client)[0] if count else now
                    self._failed[client] = (since, count + 1)
                    _bound(self._failed)
                    raise
            raise _too_many(address) from error

    def is_limited(self, address: str, now: datetime) -> bool:
        """Whether the next failure of the address is one too many."""
        if not self._failed:
            return False
        return self._count(addresses.client_of(address), now) >= MOST_FAILURES

    def keep_wrong(self, token: str) -> None:
        """Remember for a second that the token is not valid."""
        if len(self._wrong) >= _MOST_KEPT:
            self._wrong.clear()
        self._wrong[hashlib.sha256(token.encode()).digest()] = time.monotonic() + _WRONG_KEPT_S

    def refuse_repeated(self, address: str, token: str) -> None:
        """
        Raises:
            TooManyRequests: the token is one that `keep_wrong` was told of.
        """
        until_s = self._wrong.get(hashlib.sha256(token.encode()).digest(), 0.0)
        if time.monotonic() < until_s:
            raise _too_many(address)

    def _count(self, address: str, now: datetime) -> int:
        since, count = self._failed.get(address, (now, 0))
        return count if now - since < WINDOW else 0


def _too_many(address: str) -> TooManyRequests:
    return TooManyRequests(
        f"too many requests with a wrong token came from `{address}`",
        "find the program there that sends an old token, and wait a minute",
    )


def _bound(entries: OrderedDict[str, tuple[datetime, int]]) -> None:
    if len(entries) > _MOST_KEPT:
        entries.popitem(last=False)
