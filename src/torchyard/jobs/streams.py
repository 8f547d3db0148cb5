"""Following a job: one resumable stream of its events and its output.

Owns: the frames and their order.
Leaves: printing to the CLI.
Always: a frame's bytes begin where the client's offset for that log stands, so each byte comes
once however often the stream is broken off and taken up again; `end` comes last, after the
last byte.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from fastapi.concurrency import run_in_threadpool

from torchyard.base.clock import to_text
from torchyard.environments.types import from_json as environment_from_json
from torchyard.jobs import actions, store
from torchyard.jobs.room import Room
from torchyard.jobs.shape import job_json
from torchyard.jobs.types import Job, Status

_CHUNK = 1 << 18
_ROUND = 1 << 22
_LOOK_EVERY_S = 1.0
_PING_EVERY_S = 10.0
BUILD = "build"


@dataclass
class Cursor:
    """How far a client has read: the last event's number, and the next byte of each log."""

    after: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    waiting: str = ""


async def frames(room: Room, job: Job, cursor: Cursor) -> AsyncIterator[bytes]:
    """Everything from `cursor` on, until the job has ended or the server stops."""
    last_sent = time.monotonic()
    key = actions.job_key(job)
    while True:
        seen = room.signals.count(key)
        current, blocks, more = await run_in_threadpool(_look, room, job, cursor)
        for block in blocks:
            yield block
        if blocks:
            last_sent = time.monotonic()
        if more:
            continue
        if current.status.ended:
            body = await run_in_threadpool(job_json, room, current)
            yield _frame({"kind": "end", "job": body})
            return
        if room.signals.closed:
            return
        if time.monotonic() - last_sent > _PING_EVERY_S:
            yield _frame({"kind": "ping"})
            last_sent = time.monotonic()
        await room.signals.wait(key, seen, _LOOK_EVERY_S)


def _look(room: Room, job: Job, cursor: Cursor) -> tuple[Job, list[bytes], bool]:
    """The job as it is, what is new, and whether there is more at once."""
    # The job is read first: when it has ended, everything of it is on disk already.
    current = actions.get(room, job.workspace, job.name)
    blocks = [_frame(frame) for frame in _events(room, current, cursor)]
    waiting = actions.why_waiting(room, current)
    if waiting != cursor.waiting:
        cursor.waiting = waiting
        if waiting:
            blocks.append(_frame({"kind": "waiting", "message": waiting}))
    budget = _ROUND
    for name, header, path in _files(room, current):
        offset = cursor.offsets.get(name, 0)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            continue
        if size <= offset or budget <= 0:
            continue
        with open(path, "rb") as file:
            file.seek(offset)
            while budget > 0 and (content := file.read(min(_CHUNK, budget))):
                blocks.append(_frame({**header, "offset": offset, "size": len(content)}) + content)
                offset += len(content)
                budget -= len(content)
        cursor.offsets[name] = offset
    return current, blocks, budget <= 0


def _events(room: Room, job: Job, cursor: Cursor) -> Iterator[dict[str, Any]]:
    for event in actions.events(room, job, cursor.after):
        cursor.after = event.seq
        yield {"kind": event.kind, "seq": event.seq, "at": to_text(event.at), **event.body}


def _files(room: Room, job: Job) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(cursor's key, frame without place, file) of everything that grows."""
    if _was_built(room, job):
        with room.db.read() as connection:
            environment = environment_from_json(store.environment_of(connection, job.id))
        yield BUILD, {"kind": "build"}, room.environments.log_path(environment)
    for log in room.logs.list(job.workspace, job.name):
        header = {"kind": "log", "attempt": log.attempt, "path": log.path}
        file = room.logs.file(job.workspace, job.name, log.attempt, log.path)
        yield f"{log.attempt}/{log.path}", header, file


def _was_built(room: Room, job: Job) -> bool:
    """Whether this job waited for its environment; others' builds are not its news."""
    if job.type != "command" or job.status is Status.NOT_STARTED:
        return False
    return any(
        event.kind == "stage" and event.body.get("waited_for")
        for event in actions.events(room, job)
    )


def _frame(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode() + b"\n"
