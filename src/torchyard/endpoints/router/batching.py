"""Dynamic batching: rows of several requests become one request to the model.

Owns: which requests can be joined, joining their rows, splitting the answer.
Leaves: slots and queues to deployments.py.
Always: requests are joined only where all but their rows is equal; an answer that is not a list
with one value for each row is an error of the deployment, said to each client.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torchyard.endpoints.router import errors
from torchyard.endpoints.router.calls import Call, Headers
from torchyard.endpoints.router.deployments import Deployment
from torchyard.endpoints.router.errors import Refusal

MOST_BYTES = 1 << 20
"""Longer bodies go alone."""
_ANSWER_MOST_BYTES = 64 << 20
_FIELDS = ("data", "inputs")
_OWN = frozenset((b"content-type", b"content-length", b"transfer-encoding", b"content-encoding"))


class Member(Protocol):
    """A request that may be joined with others."""

    is_done: bool

    def answered(self, status: int, reason: bytes, headers: Headers, body: bytes) -> None: ...

    def refused(self, refusal: Refusal) -> None: ...


@dataclass(frozen=True)
class Rows:
    """A body's rows.

    Attributes:
        field: the key they stand under.
        rest: the body without them, as JSON text.
    """

    field: str
    rows: list[Any]
    rest: str


def rows_of(body: bytes, content_type: bytes) -> Rows | None:
    """The rows of a body; None when it can't be joined with others."""
    media_type = content_type.split(b";", 1)[0].strip().lower()
    if len(body) > MOST_BYTES or media_type not in (b"", b"application/json"):
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    fields = [name for name in _FIELDS if isinstance(document.get(name), list)]
    if len(fields) != 1 or not document[fields[0]]:
        return None
    rows = document.pop(fields[0])
    return Rows(fields[0], rows, json.dumps(document, sort_keys=True))


class BatchCall(Call):
    """One request to the model for several clients."""

    def __init__(self, path: bytes, host: bytes, field: str, rest: str) -> None:
        super().__init__()
        self._path, self._host, self._field, self._rest = path, host, field, rest
        self._members: list[tuple[Member, int]] = []
        self._rows: list[Any] = []
        self._status, self._reason = 0, b""
        self._headers: Headers = ()
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self.flush_timer: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        """Rows so far."""
        return len(self._rows)

    def add(self, member: Member, rows: list[Any]) -> None:
        self._members.append((member, len(rows)))
        self._rows += rows

    def close(self) -> None:
        """No more rows come: make the request."""
        body = json.dumps({**json.loads(self._rest), self._field: self._rows}).encode()
        identity = str(uuid.uuid4()).encode()
        self.head = (
            b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n"
            b"x-ms-request-id: %b\r\n" % (self._path, self._host, identity)
        )
        self.length, self.parts = len(body), [body]

    def answered(self, status: int, reason: bytes, headers: Headers, body: bytes) -> None:
        self.is_done = True
        self.stop_timer()
        passed = [line for line in headers if line[0] not in _OWN]
        if not 200 <= status < 300:
            media_type = [line for line in headers if line[0] == b"content-type"]
            self._each(lambda member, _: member.answered(status, reason, passed + media_type, body))
            return
        try:
            values = json.loads(body)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, list) or len(values) != len(self._rows):
            self._each(lambda member, _: member.refused(errors.BAD_BATCH))
            return
        typed = [*passed, (b"content-type", b"application/json")]
        begin = 0

        def answer(member: Member, count: int) -> None:
            nonlocal begin
            part = json.dumps(values[begin : begin + count]).encode()
            begin += count
            if not member.is_done:
                member.answered(status, reason, typed, part)

        for member, count in self._members:
            answer(member, count)

    def begun(self, status: int, reason: bytes, headers: Headers, length: int | None) -> None:
        self._status, self._reason, self._headers = status, reason, headers

    def piece(self, data: bytes) -> None:
        self._size_bytes += len(data)
        if self._size_bytes > _ANSWER_MOST_BYTES:
            self.refused(errors.BAD_BATCH)
            self.leave()
            return
        self._pieces.append(data)

    def ended(self) -> None:
        self.answered(self._status, self._reason, self._headers, b"".join(self._pieces))

    def upgraded(self, reason: bytes, headers: Headers, data: bytes) -> None:
        self.refused(errors.BAD_ANSWER)

    def refused(self, refusal: Refusal) -> None:
        self.is_done = True
        self.stop_timer()
        self._each(lambda member, _: member.refused(refusal))

    def _each(self, act: Callable[[Member, int], None]) -> None:
        for member, count in self._members:
            if not member.is_done:
                act(member, count)


class Batches:
    """Requests that wait for others to be joined with."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: dict[tuple[Deployment, bytes, str, str], BatchCall] = {}

    def add(self, member: Member, target: Deployment, path: bytes, host: bytes, rows: Rows) -> None:
        """The request goes with those that come in the next milliseconds."""
        batching = target.row.batching
        assert batching is not None
        key = (target, path, rows.field, rows.rest)
        batch = self._open.get(key)
        if batch is not None and batch.size + len(rows.rows) > batching.max_size:
            self._flush(key)
            batch = None
        if batch is None:
            batch = self._open[key] = BatchCall(path, host, rows.field, rows.rest)
            wait_s = batching.max_wait_ms / 1000
            batch.flush_timer = self._loop.call_later(wait_s, self._flush, key)
        batch.add(member, rows.rows)
        if batch.size >= batching.max_size:
            self._flush(key)

    def _flush(self, key: tuple[Deployment, bytes, str, str]) -> None:
        batch = self._open.pop(key)
        if batch.flush_timer is not None:
            batch.flush_timer.cancel()
        batch.close()
        target = key[0]
        target.counters.batches += 1
        if target.is_gone:
            batch.refused(errors.NO_DEPLOYMENT)
        else:
            target.admit(batch)
