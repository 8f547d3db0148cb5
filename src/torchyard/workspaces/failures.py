"""Rate limit for wrong tokens.

Owns: counting failures by address (of IPv6, by /64), refusing addresses that fail too often.
Leaves: whether a token is valid to actions.py, a request's address to app/forwarded.py.
Always: a token that was valid before is not affected by failures from its address; memory is
bounded.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from torchyard.base import addresses
from torchyard.base.errors import NotAuthenticated, TooManyRequests

MOST_FAILURES = 200
WINDOW = timedelta(minutes=1)
_MOST_KEPT = 10_000


class Failures:
    """Of one server process; safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By address: when its window began, and how many failures are in it.
        self._failed: OrderedDict[str, tuple[datetime, int]] = OrderedDict()
        self._good: OrderedDict[bytes, None] = OrderedDict()

    @contextmanager
    def watched(self, address: str, token: str, now: datetime) -> Iterator[None]:
        """Wraps the lookup of a token, which raises NotAuthenticated if the token is not valid.

        Raises:
            TooManyRequests: the address failed too often within the last minute.
        """
        address = addresses.client_of(address)
        mark = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        with self._lock:
            if mark not in self._good and self._count(address, now) >= MOST_FAILURES:
                raise TooManyRequests(
                    f"too many requests with a wrong token came from `{address}`",
                    "find the program there that sends an old token, and wait a minute",
                )
        try:
            yield
        except NotAuthenticated:
            with self._lock:
                self._good.pop(mark, None)
                since, count = self._failed.pop(address, (now, 0))
                # After the window has passed, a new one starts.
                fresh = now - since >= WINDOW
                self._failed[address] = (now, 1) if fresh else (since, count + 1)
                _bound(self._failed)
            raise
        with self._lock:
            self._good[mark] = None
            self._good.move_to_end(mark)
            _bound(self._good)

    def _count(self, address: str, now: datetime) -> int:
        since, count = self._failed.get(address, (now, 0))
        return count if now - since < WINDOW else 0


def _bound(kept: OrderedDict[str, tuple[datetime, int]] | OrderedDict[bytes, None]) -> None:
    if len(kept) > _MOST_KEPT:
        kept.popitem(last=False)
