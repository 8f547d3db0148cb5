"""Waking those who wait for news of a job.

Owns: who waits for what inside this process.
Leaves: what the news is to the store: a waiter always looks again; other servers to
servers/notifications.py.
Always: news that comes between a look and the wait is not missed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable

_MOST_KEYS = 10_000


class Signals:
    """A counter per key; packages call `notify` from any thread, streams `await wait`."""

    def __init__(self) -> None:
        # SIGTERM calls `close` in the event loop's thread, wherever that is: also below.
        self._lock = threading.RLock()
        # Keys that were not told of since `_start` count from there.
        self._start = 0
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._tell: Callable[[str], None] | None = None
        self._listeners: tuple[Callable[[str], None], ...] = ()

    def share(self, tell: Callable[[str], None]) -> None:
        """From now on, have other servers told of what is notified here."""
        self._tell = tell

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def listen(self, hear: Callable[[str], None]) -> None:
        """Call `hear` with every key, in any thread, until `ignore`.

        The key is empty when some were lost, and when the server stops.
        """
        with self._lock:
            self._listeners = (*self._listeners, hear)

    def ignore(self, hear: Callable[[str], None]) -> None:
        with self._lock:
            self._listeners = tuple(each for each in self._listeners if each != hear)

    def count(self, key: str) -> int:
        """Read this before looking at the store, and hand it to `wait`."""
        with self._lock:
            return self._counts.get(key, self._start)

    def notify(self, key: str) -> None:
        self.heard(key)
        if self._tell is not None:
            self._tell(key)

    def heard(self, key: str) -> None:
        """As `notify`, of what another server told."""
        with self._lock:
            if len(self._counts) >= _MOST_KEYS:
                # Those of ended jobs are never asked for again. The others look once more.
                self._start = max(self._counts.values()) + 1
                self._counts.clear()
                waiting = self._everyone()
            else:
                waiting = list(self._waiting.get(key, ()))
            self._counts[key] = self._counts.get(key, self._start) + 1
        for event in waiting:
            self._wake(event)
        for hear in self._listeners:
            hear(key)

    def missed(self) -> None:
        """Have everyone look again: what other servers told may be lost."""
        with self._lock:
            self._start = max(self._counts.values(), default=self._start) + 1
            self._counts.clear()
            waiting = self._everyone()
        for event in waiting:
            self._wake(event)
        for hear in self._listeners:
            hear("")

    async def wait(self, key: str, seen: int, timeout_s: float) -> None:
        """Return when `key` was notified after `seen` was read, or when the time is over."""
        event = asyncio.Event()
        with self._lock:
            if self._counts.get(key, self._start) != seen or self._closed:
                return
            self._waiting[key].add(event)
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except asyncio.TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting[key].discard(event)
                if not self._waiting[key]:
                    del self._waiting[key]

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Let every waiter go; the server is stopping."""
        with self._lock:
            self._closed = True
            waiting = self._everyone()
        for event in waiting:
            self._wake(event)
        for hear in self._listeners:
            hear("")

    def _everyone(self) -> list[asyncio.Event]:
        return [event for events in self._waiting.values() for event in events]

    def _wake(self, event: asyncio.Event) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(event.set)
