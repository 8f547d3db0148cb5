"""One HTTP connection: how fast its client must be, how much of it is kept.

Owns: limits on a request's head, on the pace of bodies and of responses, on requests sent ahead.
Leaves: HTTP itself to uvicorn, the number of connections to connections.py, TLS to listeners.py.
Always: no byte of a body is read before the app asks for it, beyond those that came with the head;
a client that is slow, silent or endless loses its connection.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from torchyard.app.connections import PIECE_BYTES, Connections, ReadingTurns, Slot, Stage
from torchyard.base.errors import LimitExceeded, ServerBusy, SlowRequest, TorchyardError

_HEAD_MOST_BYTES = 64 << 10
_MOST_HEADERS = 256
LEAST_BYTES_PER_S = 1000.0
_MOST_PIPELINED = 16
_RETRY_AFTER_S = 2
_FAREWELL_S = 1.0
_PHRASES = {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Busy"}


class _HeadTooLong(LimitExceeded):
    """The status that HTTP has for headers."""

    http_status = 431


_LONG_HEAD = _HeadTooLong("the request's head is longer than 64 KiB", "shorten its headers")
_MANY_HEADERS = _HeadTooLong(f"the request has more than {_MOST_HEADERS} headers", "send fewer")
_SLOW_BODY = SlowRequest(
    f"the request's body came more slowly than {LEAST_BYTES_PER_S / 1000:g} kB/s",
    "send it again over a better connection, or in smaller parts",
)
_BUSY = ServerBusy("the server has too many connections", "try again in a few seconds")


class Pace:
    """Whether bytes come, or go, at the least rate, averaged; a lead lasts for the grace."""

    def __init__(self, grace_s: float, now: float) -> None:
        self._grace_s = self._lead_s = grace_s
        self._at = now

    def is_kept(self, now: float, new_bytes: int) -> bool:
        """
        Args:
            new_bytes: since the last call.
        """
        lead_s = self._lead_s - (now - self._at) + new_bytes / LEAST_BYTES_PER_S
        self._lead_s, self._at = min(lead_s, self._grace_s), now
        return lead_s > 0

    def pause(self, now: float) -> None:
        """The time since the last call was not the client's."""
        self._at = now


class _FlowInTurns(FlowControl):
    """Reads on when it is the connection's turn."""

    def __init__(self, transport: asyncio.Transport, turns: ReadingTurns) -> None:
        super().__init__(transport)
        self._turns = turns
        self._is_queued = self._is_lost = False
        self._limit_pieces(PIECE_BYTES)

    def resume_reading(self) -> None:
        if self.read_paused and not self._is_queued:
            self._is_queued = True
            self._turns.wait(self._resume)

    def end(self) -> None:
        """The connection is lost; its transport may fail from now on."""
        self._is_lost = True

    def _resume(self) -> None:
        self._is_queued = False
        if self._is_lost:
            return
        self._limit_pieces(self._turns.piece_bytes)
        super().resume_reading()

    def _limit_pieces(self, size_bytes: int) -> None:
        # asyncio's transport without TLS has this; with TLS a piece is what the other side sent.
        if hasattr(self._transport, "max_size"):
            self._transport.max_size = size_bytes


class JoinedWrites:
    """A transport for the response to one request, whose head leaves together with what follows it.

    uvicorn writes head and body apart, each of which takes as long in the system as a whole small
    response.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._is_begun = False

    def write(self, data: bytes) -> None:
        if self._is_begun:
            if self._head:
                self._head, data = b"", self._head + data
            self._transport.write(data)
        else:
            self._is_begun = True
            self._head = data
            self._loop.call_soon(self._send_head)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._send_head()
        self._transport.close()

    def _send_head(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class PacedProtocol(HttpToolsProtocol):
    """
    Args:
        connections: what it counts among.
        slot: its own, if it was counted before, while it did its TLS handshake.
    """

    def __init__(
        self, *args: Any, connections: Connections, slot: Slot | None = None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._connections = connections
        self._limits = connections.limits
        self._slot = slot
        self._early = bytearray()
        self._is_refused = self._is_lost = False
        self._below: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport, below: asyncio.Transport | None = None
    ) -> None:
        """
        Args:
            below: what carries the transport's bytes, if that is one of TLS.
        """
        if self._is_lost:
            return  # right behind its handshake
        super().connection_made(transport)
        self._below = below
        self.flow = _FlowInTurns(transport, self._connections.turns)
        now = self.loop.time()
        self._in_head = True
        self._head_bytes = self._body_bytes = self._headers_count = 0
        self._unsent_bytes = 0
        self._head_since = now
        self._body_pace = self._response_pace = Pace(self._limits.grace_s, now)
        self._timer = self.loop.call_later(self._limits.look_s, self._look)
        host = self.client[0] if self.client else ""
        if self._slot is None:
            self._slot = self._connections.admit(host, self._abort)
            if self._slot is None:
                self._turn_away()
                return
        self._slot.close, self._slot.is_sending = self._abort, self._is_sending
        if self._early:
            early, self._early = bytes(self._early), bytearray()
            self.data_received(early)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if isinstance(self.flow, _FlowInTurns):
            self.flow.end()
        if self._slot is not None:
            self._slot.release()
        if self._timer is not None:
            self._timer.cancel()
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self.transport is None:
            # TLS delivers what came right behind the handshake before the connection is made.
            self._early += data
            return
        if self._in_head:
            if not self._head_bytes:
                self._head_since = self.loop.time()
                if self._is_free():
                    self._enter(Stage.WAITING)
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            if self._head_bytes > _HEAD_MOST_BYTES:
                self._refuse(_LONG_HEAD)
            elif self._headers_count > _MOST_HEADERS:
                self._refuse(_MANY_HEADERS)
        elif self._is_free():
            # What nobody wants any more is skipped in turns, too.
            self.flow.pause_reading()
            self.flow.resume_reading()
        elif self.cycle.body:
            # `receive` takes it and resumes; what comes next waits for that.
            self.flow.pause_reading()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise ValueError("too many requests were sent ahead of their responses")
        self._headers_count = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers_count += 1
        if self._headers_count <= _MOST_HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._headers_count > _MOST_HEADERS:
            self._refuse(_MANY_HEADERS)
            raise ValueError(_MANY_HEADERS.message)
        self._in_head = False
        self._body_bytes = 0
        self._body_pace = Pace(self._limits.grace_s, self.loop.time())
        self._enter(Stage.BUSY)
        super().on_headers_complete()
        self.cycle.transport = cast(asyncio.Transport, JoinedWrites(self.transport, self.loop))

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing() or self.pipeline:
            return
        if self._is_free():
            self._enter(Stage.IDLE)
            # A body that was not wanted.
            self.cycle.body.clear()
            if not self._in_head:
                self.loop.call_later(self._limits.skip_s, self._stop_skipping, self.cycle)

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _enter(self, stage: Stage) -> None:
        if self._slot is not None:
            self._slot.enter(stage)

    def _is_free(self) -> bool:
        """Whether no request is at work or waits for its turn."""
        return self.cycle is None or self.cycle.response_complete

    def _stop_skipping(self, cycle: Any) -> None:
        if self.cycle is cycle and not self._in_head and not self.transport.is_closing():
            self.transport.close()

    def _is_sending(self) -> bool:
        return self._unsent() > 0

    def _unsent(self) -> int:
        """Bytes of responses that the system has not taken yet."""
        waiting_bytes = self.transport.get_write_buffer_size()
        below_bytes = 0 if self._below is None else self._below.get_write_buffer_size()
        return waiting_bytes + below_bytes

    def _abort(self) -> None:
        self.transport.abort()

    def _turn_away(self) -> None:
        """Refuse a connection that is one too many.

        The client most likely sends its request just now; were that met by a closed socket, its
        system would throw the response away.
        """
        self._is_refused = True
        if self._connections.begin_farewell():
            self._write_refusal(_BUSY)
            self.transport.write_eof()
            self.loop.call_later(_FAREWELL_S, self._end_farewell)
        else:
            self.transport.abort()

    def _end_farewell(self) -> None:
        self._connections.end_farewell()
        self.transport.abort()

    def _refuse(self, error: TorchyardError) -> None:
        self._write_refusal(error)
        self.transport.close()

    def _write_refusal(self, error: TorchyardError) -> None:
        body = json.dumps(error.to_json()).encode()
        status = error.http_status
        retry = b"retry-after: %d\r\n" % _RETRY_AFTER_S if status == 503 else b""
        self.transport.write(
            b"HTTP/1.1 %d %b\r\nconnection: close\r\n%b"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (status, _PHRASES[status].encode(), retry, len(body), body)
        )

    def _look(self) -> None:
        """Hang up on a client that is too slow."""
        now = self.loop.time()
        self._timer = self.loop.call_later(self._limits.look_s, self._look)
        if not self._takes_response(now):
            self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self._in_head:
            is_new = self.cycle is None  # between two requests uvicorn has a limit of its own
            if (self._head_bytes or is_new) and now - self._head_since > self._limits.head_s:
                self.transport.close()
        elif not self._sends_body(now):
            if self.cycle is not None and not self.cycle.response_started:
                self._refuse(_SLOW_BODY)
            else:
                self.transport.close()

    def _sends_body(self, now: float) -> bool:
        new_bytes, self._body_bytes = self._body_bytes, 0
        if self.flow.read_paused:
            self._body_pace.pause(now)
            return True
        return self._body_pace.is_kept(now, new_bytes)

    def _takes_response(self, now: float) -> bool:
        before_bytes = self._unsent_bytes
        self._unsent_bytes = self._unsent()
        if not before_bytes or self._unsent_bytes > before_bytes:
            self._response_pace = Pace(self._limits.grace_s, now)
            return True
        return self._response_pace.is_kept(now, before_bytes - self._unsent_bytes)
