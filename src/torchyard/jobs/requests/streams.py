"""Stream a job: its events and its output, resumable.

Owns: the frames and their order.
Leaves: printing to the CLI.
Always: a frame's bytes begin at the client's offset for that log, so each byte comes once
however often the stream is interrupted and resumed; `end` comes last, after the last byte. What
is there when a stream is opened comes in the order of time, events and bytes of all logs.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from fastapi.concurrency import run_in_threadpool

from torchyard.base.clock import to_text
from torchyard.environments.types import from_json as environment_from_json
from torchyard.jobs import actions
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.records import job_masking, store
from torchyard.jobs.records.job_events import Event, StageChanged, build_log_offset
from torchyard.jobs.records.log_order import Piece
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests.to_json import job_json
from torchyard.jobs.services import Services

_FRAME_BYTES = 1 << 18
_FRAMES_AT_ONCE = 8
_REPLAYED_AT_ONCE, _REPLAYED_BYTES = 500, 2 << 20
_READ_EVERY_S = 1.0
_PING_EVERY_S = 10.0
BUILD = "build"


@dataclass
class Cursor:
    """How far a client has read: the last event's number, and the next byte of each log."""

    after: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    waiting: str = ""


async def frames(services: Services, job: Job, cursor: Cursor) -> AsyncIterator[bytes]:
    """Everything from `cursor` on, until the job has ended or the server stops."""
    follower = _Follower(services, job, cursor)
    last_sent = time.monotonic()
    key = actions.job_key(job)
    while True:
        seen = services.signals.count(key)
        current, blocks, more = await run_in_threadpool(follower.read_new)
        for block in blocks:
            yield block
        if blocks:
            last_sent = time.monotonic()
        if more:
            continue
        if current.status.ended:
            body = await run_in_threadpool(job_json, services, current)
            yield _frame({"kind": "end", "job": body})
            return
        if services.signals.closed:
            return
        if time.monotonic() - last_sent > _PING_EVERY_S:
            yield _frame({"kind": "ping"})
            last_sent = time.monotonic()
        await services.signals.wait(key, seen, _READ_EVERY_S)


class _Follower:
    """One client's view of one job."""

    def __init__(self, services: Services, job: Job, cursor: Cursor) -> None:
        self._services = services
        self._job = job
        self._cursor = cursor
        self._masker = job_masking.masker(job)
        # A resumed stream has the log's offset in its cursor.
        self._building = BUILD in cursor.offsets
        # What there was when the stream was opened, latest first; None before it is read.
        self._replay: list[Event | Piece] | None = None

    def read_new(self) -> tuple[Job, list[bytes], bool]:
        """The job as it is now, new frames, and whether more is ready."""
        # The job is read first: once it has ended, all of its output is on disk.
        job = actions.get(self._services, self._job.workspace, self._job.name)
        if self._replay is None:
            self._replay = self._past(job)
        if self._replay:
            return job, self._replayed(job, self._replay), True
        blocks, more = [], False
        for event in actions.events(self._services.db, job, self._cursor.after):
            new, more = self._event_frames(job, event)
            blocks += new
            if more:
                return job, blocks, True
        if self._building:
            new, more = self._build_frames(job)
            blocks += new
        reason = waiting_reasons.describe(self._services, job)
        if reason != self._cursor.waiting:
            self._cursor.waiting = reason
            if reason:
                blocks.append(_frame({"kind": "waiting", "message": reason}))
        for log in self._services.logs.list(job.workspace, job.name):
            new, rest = self._log_frames(job, log.attempt, log.path)
            blocks += new
            more = more or rest
        return job, blocks, more

    def _past(self, job: Job) -> list[Event | Piece]:
        """Events and pieces of logs behind the cursor, the latest first.

        One after the other is taken from the end.
        """
        pieces = self._services.logs.pieces(job.workspace, job.name)
        if not pieces:
            return []
        events = actions.events(self._services.db, job, self._cursor.after)
        # Each keep their order, also where the clock was set back between two of them. Of the same
        # time, events come first: a rank's output follows its start.
        sources: tuple[Sequence[Event | Piece], ...] = (events, pieces)
        timed = [
            pair
            for items in sources
            for pair in zip(accumulate((item.at for item in items), max), items, strict=True)
        ]
        return [item for _, item in sorted(timed, key=lambda pair: pair[0])][::-1]

    def _replayed(self, job: Job, replay: list[Event | Piece]) -> list[bytes]:
        """The frames of the next items, which are taken away."""
        blocks: list[bytes] = []
        size_bytes = 0
        while replay and len(blocks) < _REPLAYED_AT_ONCE and size_bytes < _REPLAYED_BYTES:
            item = replay[-1]
            if isinstance(item, Event):
                new, more = self._event_frames(job, item)
            else:
                new, more = self._log_frames(job, item.attempt, item.path, item.end)
            blocks += new
            size_bytes += sum(map(len, new))
            if not more:
                replay.pop()
        return blocks

    def _event_frames(self, job: Job, event: Event) -> tuple[list[bytes], bool]:
        """The event's frame, and whether more of what belongs before it is ready."""
        blocks: list[bytes] = []
        if self._building and _ends_preparing(event):
            # The whole build log comes before the end of its stage.
            blocks, more = self._build_frames(job)
            if more:
                return blocks, True
            self._building = False
        self._cursor.after = event.seq
        head = {"kind": event.kind, "seq": event.seq, "at": to_text(event.at)}
        blocks.append(_frame(self._masker.json({**head, **event.body.to_json()})))
        offset = build_log_offset(event)
        if offset is not None:
            self._cursor.offsets.setdefault(BUILD, offset)
            self._building = True
        return blocks, False

    def _log_frames(
        self, job: Job, attempt: int, path: str, end: int | None = None
    ) -> tuple[list[bytes], bool]:
        file = self._services.logs.file(job.workspace, job.name, attempt, path)
        header = {"kind": "log", "attempt": attempt, "path": path}
        return self._grown(f"{attempt}/{path}", header, file, end)

    def _build_frames(self, job: Job) -> tuple[list[bytes], bool]:
        with self._services.db.read() as connection:
            environment = environment_from_json(store.environment_of(connection, job.id))
        log = self._services.environments.folders.log_path(environment.hash)
        return self._grown(BUILD, {"kind": "build"}, log)

    def _grown(
        self, name: str, header: dict[str, Any], path: Path, end: int | None = None
    ) -> tuple[list[bytes], bool]:
        """Frames of a file's content after the cursor, and whether there is more.

        Args:
            end: where to stop; the end of the file when None.
        """
        offset = self._cursor.offsets.get(name, 0)
        blocks: list[bytes] = []
        if end is not None and offset >= end:
            return [], False
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                while len(blocks) < _FRAMES_AT_ONCE:
                    size_bytes = _FRAME_BYTES if end is None else min(_FRAME_BYTES, end - offset)
                    content = file.read(size_bytes)
                    if not content:
                        break
                    range_fields = {"offset": offset, "size": len(content)}
                    blocks.append(_frame({**header, **range_fields}) + content)
                    offset += len(content)
        except FileNotFoundError:
            return [], False
        self._cursor.offsets[name] = offset
        return blocks, len(blocks) == _FRAMES_AT_ONCE


def _ends_preparing(event: Event) -> bool:
    return isinstance(event.body, StageChanged) and event.body.state == "end"


def _frame(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode() + b"\n"
