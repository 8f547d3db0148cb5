"""HTTP: the one stream of events that an open page follows.

Owns: a stream's frames, how many streams a person may have.
Leaves: what the events are to event_hub.py, data to the native API; ending the stream of one whose
session has ended, or who has lost the role, to workspaces/guarded_routes.py.
Always: a slow reader holds no more than its place in the feed.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from torchyard.base.bodies.live_streams import LiveStream
from torchyard.base.errors import InvalidInput, TooManyRequests
from torchyard.compute import actions as computes
from torchyard.jobs.requests import news
from torchyard.jobs.services import RecordServices, Services, ServicesOf
from torchyard.web.event_hub import Event, Feed, Hub
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity

MOST_STREAMS = 128
"""Of one person at one server."""
_MOST_FOLLOWED = 100
_PING_EVERY_S = 15.0
_TYPE = "text/event-stream"
_OF_FOLLOWED = ("metrics", "logs")

Names = Annotated[list[str] | None, Query()]
router = APIRouter(prefix="/v1/workspaces/{workspace}", tags=["page"], route_class=GuardedRoute)


class Streams:
    """The open streams of one server; for use in its event loop alone."""

    def __init__(self, services: Services) -> None:
        self.hub = Hub(services)
        self._open: Counter[str] = Counter()

    def enter(self, user: str) -> None:
        """
        Raises:
            TooManyRequests: the person has too many streams.
        """
        if self._open[user] >= MOST_STREAMS:
            raise TooManyRequests(
                f"`{user}` has {MOST_STREAMS} event streams open",
                "close some of the pages, or the program that opens streams",
            )
        self._open[user] += 1

    def leave(self, user: str) -> None:
        self._open[user] -= 1
        if not self._open[user]:
            del self._open[user]


async def _streams(request: Request, services: ServicesOf) -> Streams:
    state = request.app.state
    if not hasattr(state, "event_streams"):
        state.event_streams = Streams(services)
    streams: Streams = state.event_streams
    return streams


class _Stream(LiveStream):
    """Gives its place back, also when it ends before the first frame."""

    def __init__(self, frames: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(frames, _TYPE, _LAST_WORDS)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


StreamsOf = Annotated[Streams, Depends(_streams)]


@dataclass(frozen=True)
class _Subscription:
    """What one stream sends: `only` the followed jobs' rows, or those of all; of the jobs that were
    asked for, `missing` are not there.
    """

    jobs: frozenset[int]
    computes: frozenset[str]
    only: bool
    missing: tuple[str, ...] = ()

    def includes(self, event: Event) -> bool:
        if event.kind in _OF_FOLLOWED:
            return event.job in self.jobs
        if event.kind == "compute":
            return event.compute in self.computes
        return event.kind != "job" or not self.only or event.job in self.jobs


@router.get("/events")
@needs(Permission.READ)
async def follow(
    request: Request,
    services: ServicesOf,
    streams: StreamsOf,
    workspace: str,
    identity: Person,
    job: Names = None,
    compute: Names = None,
    jobs: str = "all",
    last: str = "",
) -> LiveStream:
    """Server-sent events: `hello`, `job`, `metrics`, `logs`, `compute`, `reset`, `ping`, `end`.

    Args:
        job: follow the metrics and logs of this job; repeatable. `hello` names those that are
            not there: they end nobody's stream, which other jobs share.
        compute: follow the nodes of this cluster; repeatable.
        jobs: `all` for every job's row, `followed` for those of `job` alone.
        last: as the header `Last-Event-ID`, for who can't set it.
    """
    if _TYPE not in request.headers.get("accept", ""):
        # A client that reads the response to its end would read for ever.
        raise InvalidInput(
            "events are a stream that does not end", f"send `Accept: {_TYPE}`, as EventSource does"
        )
    selection = await run_in_threadpool(
        _check_selection, services, workspace, job or [], compute or [], jobs
    )
    last_id = request.headers.get("last-event-id", "") or last
    streams.enter(identity.user)
    frames = _frames(streams.hub, workspace, identity, selection, last_id)
    return _Stream(frames, partial(streams.leave, identity.user))


def _check_selection(
    services: RecordServices,
    workspace: str,
    jobs: Sequence[str],
    names: Sequence[str],
    which: str,
) -> _Subscription:
    """
    Raises:
        NotFound: no such cluster.
        InvalidInput: too many, or `jobs` is neither of the two.
    """
    if len(jobs) > _MOST_FOLLOWED or len(names) > _MOST_FOLLOWED:
        raise InvalidInput(
            "the stream is asked to follow too much", f"follow {_MOST_FOLLOWED} or fewer of each"
        )
    if which not in ("all", "followed"):
        raise InvalidInput(f"`jobs` is `{which[:80]}`", "use all or followed", at=["jobs"])
    for name in names:
        computes.get(services.db, workspace, name)
    ids, missing = news.followed_ids(services, workspace, jobs)
    return _Subscription(ids, frozenset(names), which == "followed", missing)


async def _frames(
    hub: Hub, workspace: str, identity: Identity, selection: _Subscription, last_id: str
) -> AsyncIterator[bytes]:
    feed = hub.enter(workspace)
    jobs, names = sorted(selection.jobs), sorted(selection.computes)
    try:
        await hub.follow(feed, jobs, names)
        number = feed.number_in(last_id)
        is_resumed = number is not None and feed.after(number) is not None
        if number is None or not is_resumed:
            number = feed.last
        hello = {
            "resumed": is_resumed,
            # Whose stream it is: a browser's other tabs may be somebody else's.
            "user": identity.user,
            "token": identity.token or None,
            "missing": selection.missing,
        }
        yield _frame("hello", hello, f"{feed.epoch}-{number}")
        pinged_at = time.monotonic()
        while not hub.closed:
            text, number = _since(feed, number, selection)
            if text:
                yield text
            if time.monotonic() - pinged_at >= _PING_EVERY_S:
                yield _frame("ping", {})
                pinged_at = time.monotonic()
            await hub.wait(feed, number, _PING_EVERY_S)
    finally:
        hub.leave(feed, jobs, names)


def _since(feed: Feed, number: int, selection: _Subscription) -> tuple[bytes, int]:
    """The frames behind a number, and the number of the last one."""
    events = feed.after(number)
    if events is None:
        return _frame("reset", {}, f"{feed.epoch}-{feed.last}"), feed.last
    return b"".join(event.text for event in events if selection.includes(event)), feed.last


def _frame(kind: str, body: dict[str, Any], event_id: str = "") -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {kind}\ndata: {json.dumps(body)}\n\n".encode()


_LAST_WORDS = _frame("end", {"reason": "your session has ended, or your role changed"})
