"""Follow a job: frames as they come, each byte once, over lost connections.

Owns: reading frames, the cursor, patience with an unreachable server.
Leaves: what to do with a frame to the caller.
Always: a frame is yielded whole and once: events by their sequence number, bytes by their
offset; the last frame is `end`.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from torchyard.base.errors import Internal, TorchyardError, Unreachable
from torchyard.client.times import Deadline

_READ_BYTES = 1 << 18
_LONGEST_HEADER = 16 << 20

DEFAULT_PATIENCE_S = 600.0


@dataclass(frozen=True)
class Frame:
    """One message of the stream: `kind`, its fields, and for `log` and `build` its bytes."""

    kind: str
    fields: dict[str, Any]
    content: bytes = b""


@dataclass
class Cursor:
    """Where to go on: the last event seen, and for each log the next offset."""

    after: int = 0
    offsets: dict[str, int] = field(default_factory=dict)


class Answer(Protocol):
    """What is read: an http.client.HTTPResponse, or a fake."""

    def read1(self, n: int = -1, /) -> bytes: ...


Opener = Callable[[Cursor], AbstractContextManager[Answer]]
"""Opens the stream at a cursor; raises Unreachable when no server answers."""


class _Broken(Exception):
    """The stream stopped before its end."""


def follow(
    open_stream: Opener,
    cursor: Cursor | None = None,
    *,
    patience_s: float = DEFAULT_PATIENCE_S,
    on_lost: Callable[[float], None] | None = None,
    deadline: Deadline | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Frame]:
    """Yield the frames of a job until its end.

    Args:
        cursor: moved along as frames are handed on.
        patience_s: how long a server may be unreachable without a break.
        on_lost: called with the seconds until the next try, each time the server is unreachable.
        deadline: when to give up; never when None.

    Raises:
        Unreachable: the server was unreachable for longer than `patience_s`.
        Timeout: the deadline is over.
        TorchyardError: what the server answered instead of a stream.
    """
    cursor = cursor or Cursor()
    deadline = deadline or Deadline(None, "", "")
    pause_s = 0.1
    lost_at: float | None = None
    opened = False
    while True:
        try:
            with open_stream(cursor) as answer:
                opened = True
                for frame in _frames(answer):
                    lost_at, pause_s = None, 0.1
                    fresh = _advance(cursor, frame)
                    if fresh is not None:
                        yield fresh
                    if frame.kind == "end":
                        return
                    deadline.check()
                raise _Broken
        except (_Broken, http.client.HTTPException, OSError, Unreachable, Internal) as error:
            deadline.check()
            now = clock()
            # Only the caller knows whether the server should be there at first; patience is for
            # what broke later.
            if not opened and isinstance(error, TorchyardError):
                raise
            lost_at = now if lost_at is None else lost_at
            if now - lost_at > patience_s:
                raise Unreachable(
                    f"the server has not answered for {now - lost_at:.0f} seconds",
                    "the job goes on by itself; see `yard server status`, then follow it again "
                    "with `yard job stream`",
                ) from error
            if on_lost is not None and now > lost_at:
                on_lost(pause_s)
            sleep(deadline.within(pause_s))
            pause_s = min(pause_s * 2, 5.0)


def _frames(answer: Answer) -> Iterator[Frame]:
    """Frames as soon as they are whole; raises `_Broken` when the stream ends inside one."""
    buffer = bytearray()
    searched = 0
    while True:
        end = buffer.find(b"\n", searched)
        while end < 0:
            searched = len(buffer)
            if searched > _LONGEST_HEADER:
                raise Internal("the server's stream is not made of frames")
            if not _more(answer, buffer):
                if buffer:
                    raise _Broken
                return
            end = buffer.find(b"\n", searched)
        fields = _header(bytes(buffer[:end]))
        del buffer[: end + 1]
        searched = 0
        size_bytes = int(fields.get("size", 0)) if fields["kind"] in ("log", "build") else 0
        while len(buffer) < size_bytes:
            if not _more(answer, buffer):
                raise _Broken
        content = bytes(buffer[:size_bytes])
        del buffer[:size_bytes]
        yield Frame(str(fields["kind"]), fields, content)


def _more(answer: Answer, buffer: bytearray) -> bool:
    chunk = answer.read1(_READ_BYTES)
    buffer += chunk
    return bool(chunk)


def _header(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise _Broken from error
    if not isinstance(fields, dict) or "kind" not in fields:
        raise _Broken
    return fields


def _advance(cursor: Cursor, frame: Frame) -> Frame | None:
    """Move the cursor over `frame`; returns what of it is new."""
    if "seq" in frame.fields:
        if frame.fields["seq"] <= cursor.after:
            return None
        cursor.after = int(frame.fields["seq"])
        return frame
    if frame.kind not in ("log", "build"):
        return None if frame.kind == "ping" else frame
    key = "build" if frame.kind == "build" else f"{frame.fields['attempt']}/{frame.fields['path']}"
    offset = int(frame.fields["offset"])
    seen = cursor.offsets.get(key, 0)
    end = offset + len(frame.content)
    if end <= seen:
        return None
    cursor.offsets[key] = end
    if offset >= seen:
        return frame
    return Frame(frame.kind, frame.fields, frame.content[seen - offset :])
