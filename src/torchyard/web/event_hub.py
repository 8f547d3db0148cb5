"""One reader of what changes, for all event streams of this server.

Owns: what is read when something changes, the last events of each workspace, who follows which job.
Leaves: reading to jobs/requests/news.py, one stream and its limits to event_routes.py.
Always: it is used in the event loop alone and reads in threads; an event is made once, however many
streams send it; without a stream nothing is read and nothing is kept; a stream that returns after
more than is kept begins again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi.concurrency import run_in_threadpool

from torchyard.base.errors import DatabaseUnreachable, NotFound
from torchyard.jobs.requests import news
from torchyard.jobs.requests.news import Progress, Row
from torchyard.jobs.scheduling import clusters
from torchyard.jobs.services import Services

_log = logging.getLogger(__name__)
_READ_EVERY_S = 0.5
# Logs and nodes change without a signal.
_LOOK_EVERY_S = 1.0
_IDLE_S = 5.0
_MOST_KEPT = 2_000
_MOST_ROWS_KNOWN = 10_000
_MOST_ROWS_AT_ONCE = 500
# So long after the last stream has gone, one that comes back misses nothing.
_GRACE_S = 60.0


@dataclass(frozen=True)
class Event:
    """`job` is the followed job's number for `metrics` and `logs`, else what it concerns or 0."""

    number: int
    kind: str
    job: int
    compute: str
    text: bytes


@dataclass
class Feed:
    """The last events of one workspace."""

    workspace: str
    epoch: str = field(default_factory=lambda: secrets.token_hex(4))
    last: int = 0
    kept: deque[Event] = field(default_factory=lambda: deque(maxlen=_MOST_KEPT))
    streams: int = 0
    followed: Counter[int] = field(default_factory=Counter)
    computes: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, body: Mapping[str, Any], job: int = 0, compute: str = "") -> None:
        self.last += 1
        data = json.dumps(body, separators=(",", ":"), allow_nan=False)
        text = f"id: {self.epoch}-{self.last}\nevent: {kind}\ndata: {data}\n\n".encode()
        self.kept.append(Event(self.last, kind, job, compute, text))

    def after(self, number: int) -> list[Event] | None:
        """The events behind a number; None where some of them are gone."""
        missing = self.last - number
        if missing > len(self.kept) or missing < 0:
            return None
        return [self.kept[index] for index in range(len(self.kept) - missing, len(self.kept))]

    def number_in(self, last_id: str) -> int | None:
        """The number in a `Last-Event-ID`; None where it is not of this feed."""
        epoch, _, number = last_id.partition("-")
        if epoch != self.epoch or not number.isdecimal() or len(number) > 15:
            return None
        return int(number)


class Hub:
    """The feeds of one server."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[str, Feed] = {}
        self._dirty: set[int] = set()
        self._lost = False
        self._changed = asyncio.Event()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._rows: OrderedDict[int, tuple[Row, str]] = OrderedDict()
        self._progress: dict[int, Progress] = {}
        self._nodes: dict[tuple[str, str], str] = {}

    def enter(self, workspace: str) -> Feed:
        """The feed of a workspace for one more stream."""
        feed = self._feeds.setdefault(workspace, Feed(workspace))
        feed.streams += 1
        if self._task is None or self._task.done():
            self._services.signals.listen(self._hear)
            self._task = asyncio.create_task(self._run())
        return feed

    def leave(self, feed: Feed, jobs: Iterable[int], computes: Iterable[str]) -> None:
        feed.streams -= 1
        feed.followed -= Counter(jobs)
        feed.computes -= Counter(computes)
        for job_id in jobs:
            if job_id not in feed.followed:
                self._progress.pop(job_id, None)
        self._changed.set()

    async def follow(self, feed: Feed, jobs: Sequence[int], computes: Sequence[str]) -> None:
        """Tell of these jobs' metrics and logs, and of these clusters' nodes, from now on."""
        feed.followed += Counter(jobs)
        feed.computes += Counter(computes)
        for job_id in jobs:
            if job_id not in self._progress:
                progress = await run_in_threadpool(news.progress, self._services, job_id)
                if progress is not None:
                    self._progress.setdefault(job_id, progress)
        for name in computes:
            if (feed.workspace, name) not in self._nodes:
                nodes = await run_in_threadpool(self._read_nodes, feed.workspace, name)
                self._nodes.setdefault((feed.workspace, name), nodes)

    async def wait(self, feed: Feed, number: int, timeout_s: float) -> None:
        """Return when the feed has events behind a number, or when the time is over."""
        if feed.last != number or self.closed:
            return
        try:
            await asyncio.wait_for(self._news.wait(), timeout_s)
        except asyncio.TimeoutError:
            return

    @property
    def closed(self) -> bool:
        return self._services.signals.closed

    def _hear(self, key: str) -> None:
        """Called in any thread."""
        job_id = news.job_id_of(key) if key else None
        if key and job_id is None:
            return
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._note, job_id)

    def _note(self, job_id: int | None) -> None:
        if job_id is None:
            self._lost = True
        else:
            self._dirty.add(job_id)
        self._changed.set()

    async def _run(self) -> None:
        left_at: float | None = None
        try:
            while not self.closed:
                if any(feed.streams for feed in self._feeds.values()):
                    left_at = None
                elif left_at is None:
                    left_at = self._loop.time()
                if left_at is not None and self._loop.time() - left_at >= _GRACE_S:
                    return
                await self._next_change(_LOOK_EVERY_S if self._is_looking() else _IDLE_S)
                if not self.closed:
                    await self._read_and_wake()
                    await asyncio.sleep(_READ_EVERY_S)
        finally:
            self._services.signals.ignore(self._hear)
            self._feeds = {name: feed for name, feed in self._feeds.items() if feed.streams}
            self._rows.clear()
            self._progress.clear()
            self._nodes.clear()
            self._dirty.clear()
            self._wake()

    async def _read_and_wake(self) -> None:
        before = self._count()
        try:
            await self._read()
        except DatabaseUnreachable:
            pass  # the scheduler's rounds say so
        except Exception:
            _log.exception("what changed could not be read")
            self._lost = True
        if self._count() != before:
            self._wake()

    def _count(self) -> int:
        return sum(feed.last for feed in self._feeds.values())

    async def _next_change(self, timeout_s: float) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        self._changed.clear()

    def _is_looking(self) -> bool:
        feeds = [feed for feed in self._feeds.values() if feed.streams]
        live = any(
            (progress := self._progress.get(job_id)) is None or not progress.has_ended
            for feed in feeds
            for job_id in feed.followed
        )
        return live or any(feed.computes for feed in feeds)

    def _wake(self) -> None:
        waiting, self._news = self._news, asyncio.Event()
        waiting.set()

    async def _read(self) -> None:
        if self._lost:
            self._lost = False
            for feed in self._feeds.values():
                feed.add("reset", {})
        dirty = sorted(self._dirty)[:_MOST_ROWS_AT_ONCE]
        self._dirty.difference_update(dirty)
        if self._dirty:
            self._changed.set()
        if dirty:
            rows = await run_in_threadpool(news.rows, self._services, dirty)
            for row in rows:
                self._tell_row(row)
            self._tell_removed(set(dirty) - {row.job_id for row in rows})
        for feed in list(self._feeds.values()):
            for job_id in list(feed.followed):
                await self._read_progress(feed, job_id, job_id in dirty)
            for name in list(feed.computes):
                await self._look_at(feed, name)

    def _tell_row(self, row: Row) -> None:
        feed = self._feeds.get(row.workspace)
        if feed is None:
            return
        body = {"name": row.name, "last_event": row.last_event, "job": row.summary}
        text = json.dumps(body)
        if row.job_id in self._rows and self._rows[row.job_id][1] == text:
            return
        self._rows[row.job_id] = row, text
        self._rows.move_to_end(row.job_id)
        if len(self._rows) > _MOST_ROWS_KNOWN:
            self._rows.popitem(last=False)
        feed.add("job", body, row.job_id)

    def _tell_removed(self, job_ids: set[int]) -> None:
        """A deleted job may be gone from the database before its row is read."""
        rows = [self._rows[job_id][0] for job_id in sorted(job_ids) if job_id in self._rows]
        for row in rows:
            self._tell_row(replace(row, summary=None))
        if len(rows) < len(job_ids):
            for feed in self._feeds.values():
                feed.add("reset", {})

    async def _read_progress(self, feed: Feed, job_id: int, is_dirty: bool) -> None:
        old = self._progress.get(job_id)
        if old is not None and old.has_ended and not is_dirty:
            return
        new = await run_in_threadpool(news.progress, self._services, job_id, is_dirty)
        if new is None or old is None:
            self._keep_progress(job_id, new)
            return
        if not is_dirty:
            new.metrics = old.metrics
        self._keep_progress(job_id, new)
        name = new.name
        if metrics := news.new_metrics(old, new):
            feed.add("metrics", {"job": name, "metrics": metrics}, job_id)
        if logs := news.grown_logs(old, new):
            feed.add("logs", {"job": name, "logs": logs}, job_id)

    def _keep_progress(self, job_id: int, progress: Progress | None) -> None:
        if progress is None:
            self._progress.pop(job_id, None)
        else:
            self._progress[job_id] = progress

    async def _look_at(self, feed: Feed, name: str) -> None:
        nodes = await run_in_threadpool(self._read_nodes, feed.workspace, name)
        if nodes != self._nodes.get((feed.workspace, name)):
            self._nodes[feed.workspace, name] = nodes
            feed.add("compute", {"compute": name}, compute=name)

    def _read_nodes(self, workspace: str, name: str) -> str:
        try:
            return repr(clusters.nodes(self._services.db, workspace, name))
        except NotFound:
            return ""
