"""Writes of concurrent requests, gathered into one transaction.

Owns: the threads that write, what is done together, telling each request how its own write ended.
Leaves: what a write does to the packages, transactions to db.py.
Always: a request is told of success after the commit that holds its write; a write that fails takes
none of the others with it: they are all done again, each in a transaction of its own.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection

from torchyard.base.db import Database
from torchyard.base.errors import DatabaseUnreachable, Unreachable

_MOST_TOGETHER = 64
_THREADS = 4

Item = TypeVar("Item")


class Plan(NamedTuple):
    """What a kind of write does with its items.

    `parts`: of the database, as `Database.write` has them; None for everything. `apply` returns one
    result an item, in their order.
    """

    parts: Sequence[str] | None
    apply: Callable[[], Sequence[Any]]


Gather = Callable[[Connection, Sequence[Item]], Plan]
"""Plan the write of some items: it may read, but not write."""


class _Write(NamedTuple):
    gather: Gather[Any]
    item: Any
    loop: asyncio.AbstractEventLoop
    waiting: asyncio.Future[Any]


class _End(NamedTuple):
    """How a write ended."""

    write: _Write
    result: Any = None
    error: BaseException | None = None


class GroupCommit:
    """The threads that write for all requests of this server; they start with the first write.

    Args:
        threads: by default as many as the database lets write at once, up to a few, so that one
            that waits for another server does not keep the others waiting.
    """

    def __init__(self, db: Database, threads: int | None = None) -> None:
        self._db = db
        self._count = threads or (_THREADS if db.writes_side_by_side else 1)
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._closed = False

    async def run(self, gather: Callable[[Connection, Sequence[Item]], Plan], item: Item) -> Any:
        """Write one item, with those of other requests, and return its result.

        Raises:
            Unreachable: the server is stopping.
            DatabaseUnreachable: see `Database.write`.
        """
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        if not self._threads:
            self._start()
        with self._lock:
            if self._closed:
                raise Unreachable("the server is stopping", "try again")
            self._queue.put(_Write(gather, item, loop, waiting))
        return await waiting

    def close(self) -> None:
        """Finish what was handed in."""
        with self._lock:
            self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        with self._lock:
            if self._threads or self._closed:
                return
            for _ in range(self._count):
                thread = threading.Thread(target=self._work, name="group-commit", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _work(self) -> None:
        while True:
            write = self._queue.get()
            if write is None:
                return
            writes = [write]
            is_last = False
            with suppress(queue.Empty):
                while len(writes) < _MOST_TOGETHER:
                    following = self._queue.get_nowait()
                    if following is None:
                        is_last = True
                        break
                    writes.append(following)
            _tell(self._written(writes))
            if is_last:
                return

    def _written(self, writes: Sequence[_Write]) -> list[_End]:
        try:
            return self._in_one(writes)
        except DatabaseUnreachable as error:
            return [_End(write, error=error) for write in writes]
        except BaseException as error:
            if len(writes) == 1:
                return [_End(writes[0], error=error)]
        ends: list[_End] = []
        for write in writes:
            ends += self._written([write])
        return ends

    def _in_one(self, writes: Sequence[_Write]) -> list[_End]:
        by_kind: dict[Gather[Any], list[_Write]] = {}
        for write in writes:
            by_kind.setdefault(write.gather, []).append(write)
        plans: list[tuple[Plan, list[_Write]]] = []

        def parts(connection: Connection) -> Iterable[str] | None:
            names: set[str] | None = set()
            for gather, some in by_kind.items():
                plan = gather(connection, [write.item for write in some])
                plans.append((plan, some))
                names = None if names is None or plan.parts is None else names.union(plan.parts)
            return names

        ends: list[_End] = []
        with self._db.write_parts(parts):
            for plan, some in plans:
                results = plan.apply()
                assert len(results) == len(some)
                ends += [_End(write, result) for write, result in zip(some, results, strict=True)]
        return ends


def _tell(ends: Sequence[_End]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_End]] = {}
    for end in ends:
        by_loop.setdefault(end.write.loop, []).append(end)
    for loop, some in by_loop.items():
        # In a loop that is closed nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_deliver, some)


def _deliver(ends: Sequence[_End]) -> None:
    for end in ends:
        waiting = end.write.waiting
        if waiting.done():
            continue  # its request was given up
        if end.error is not None:
            waiting.set_exception(end.error)
        else:
            waiting.set_result(end.result)
