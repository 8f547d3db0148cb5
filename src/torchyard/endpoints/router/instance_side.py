"""A connection to an instance: requests out, answers in.

Owns: the framing of request bodies, parsing answers, when a connection may be used again.
Leaves: which instance gets a request to deployments.py, what becomes of the answer to the call.
Always: a connection has one call at a time; it is kept only after an answer that was whole, valid
and not followed by anything; the slot of its instance is freed when the answer is whole or the
connection is closed.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools

from torchyard.endpoints.router import errors
from torchyard.endpoints.router.calls import Call

HELD_BYTES = 256 << 10
"""An answer of a known length up to this is passed on when it is whole."""
_HEAD_MOST_BYTES = 64 << 10
_MOST_HEADERS = 256


class Owner(Protocol):
    """The instance that a connection leads to."""

    def keep(self, connection: InstanceConnection) -> None:
        """The connection may be used again."""

    def lose(self, connection: InstanceConnection) -> None:
        """The connection is closed."""

    def release(self, call: Call) -> None:
        """The call has left the connection."""


class InstanceConnection(asyncio.Protocol):
    """
    Args:
        instance: where it leads.
    """

    def __init__(self, instance: Owner) -> None:
        self._instance = instance
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._call: Call | None = None
        self._is_tunnel = self._is_lost = False
        self.idle_since = 0.0
        self._new_parser()

    def _new_parser(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._begin_answer()

    def _begin_answer(self) -> None:
        self._status, self._reason = 0, b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._length: int | None = None
        self._pieces: list[bytes] = []
        self._is_chunked = self._has_head = self._is_whole = self._has_begun = False
        self._is_kept = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    @property
    def is_usable(self) -> bool:
        return not self._is_lost and not self._transport.is_closing()

    def send(self, call: Call) -> None:
        """Send the call's head and what there is of its body."""
        self._call = call
        call.connection = self
        self._begin_answer()
        parts, call.parts = call.parts, []
        if call.upgrade:
            framing = b"connection: upgrade\r\nupgrade: %b\r\n\r\n" % call.upgrade
        elif call.length is None:
            framing = b"transfer-encoding: chunked\r\n\r\n"
            parts = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts]
            if call.is_whole:
                parts.append(b"0\r\n\r\n")
        elif call.length:
            framing = b"content-length: %d\r\n\r\n" % call.length
        else:
            framing = b"content-length: 0\r\n\r\n" if call.head[:4] in _WITH_BODY else b"\r\n"
        self._transport.write(b"".join((call.head, framing, *parts)))
        call.sent()

    def send_body(self, data: bytes) -> None:
        """One more piece of the call's body."""
        call = self._call
        if call is not None and not self._transport.is_closing():
            if call.length is None:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            self._transport.write(data)

    def end_body(self) -> None:
        call = self._call
        if call is not None and call.length is None and not self._transport.is_closing():
            self._transport.write(b"0\r\n\r\n")

    def send_tunnel(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause(self) -> None:
        """The client takes no more just now."""
        if self.is_usable:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.is_usable:
            self._transport.resume_reading()

    def abort(self) -> None:
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()

    def pause_writing(self) -> None:
        if self._call is not None:
            self._call.body_paused()

    def resume_writing(self) -> None:
        if self._call is not None:
            self._call.body_resumed()

    def data_received(self, data: bytes) -> None:
        call = self._call
        if call is None or call.is_done:
            # An idle connection has nothing to say.
            self._transport.abort()
            return
        if self._is_tunnel:
            call.piece(data)
            return
        if not self._has_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._switch(call, data[upgrade.args[0] :])
            return
        except (httptools.HttpParserError, httptools.HttpParserCallbackError):
            if not self._is_whole:
                self._fail(call, errors.BAD_ANSWER)
                return
            self._is_kept = False
        if not self._has_head:
            if self._head_bytes > _HEAD_MOST_BYTES:
                self._fail(call, errors.BAD_ANSWER)
            return
        self._deliver(call)

    def _deliver(self, call: Call) -> None:
        if self._is_whole:
            pieces, self._pieces = self._pieces, []
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if self._has_begun:
                if body:
                    call.piece(body)
                call.ended()
            else:
                call.answered(self._status, self._reason, self._headers, body)
            self._release()
            return
        if not self._has_begun:
            if self._length is not None and self._length <= HELD_BYTES:
                return
            self._has_begun = True
            call.begun(self._status, self._reason, self._headers, self._length)
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            call.piece(b"".join(pieces))

    def on_message_begin(self) -> None:
        if self._is_whole:
            self._is_kept = False

    def on_status(self, status: bytes) -> None:
        if not self._is_whole:
            self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_whole or self._has_head:
            return  # a trailer, or a second answer
        name = name.lower()
        if name == b"content-length":
            self._length = int(value)
        elif name == b"transfer-encoding":
            self._is_chunked = True
        elif len(self._headers) >= _MOST_HEADERS:
            raise ValueError("too many headers")
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._is_whole:
            return
        self._status = self._parser.get_status_code()
        if self._status < 200 and self._status != 101:
            return
        self._has_head = True
        if self._is_chunked:
            self._length = None
        if self._call is not None and self._call.is_head_request:
            self._is_whole = True

    def on_body(self, body: bytes) -> None:
        if not self._is_whole:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._is_whole:
            return
        if not self._has_head:
            # 100 Continue, 103 Early Hints
            self._begin_answer()
            return
        self._is_whole = True
        self._is_kept = self._parser.should_keep_alive()

    def _switch(self, call: Call, rest: bytes) -> None:
        if not call.upgrade or self._status != 101:
            self._fail(call, errors.BAD_ANSWER)
            return
        call.stop_timer()
        self._is_tunnel = True
        call.upgraded(self._reason, self._headers, rest)

    def _fail(self, call: Call, refusal: errors.Refusal) -> None:
        if not call.is_done:
            call.refused(refusal)
        self._transport.abort()

    def _release(self) -> None:
        """The answer is whole: free the slot, and keep the connection if it may be used again."""
        call, self._call = self._call, None
        if call is None:
            return
        call.connection = None
        if self._is_kept and call.is_whole and self.is_usable:
            self._instance.keep(self)
        else:
            self._transport.close()
        self._instance.release(call)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._instance.lose(self)
        call, self._call = self._call, None
        if call is None:
            return
        call.connection = None
        if not call.is_done:
            is_till_end = self._has_head and self._length is None and not self._is_chunked
            if self._is_tunnel:
                call.ended()
            elif is_till_end and exc is None:
                if not self._has_begun:
                    call.answered(self._status, self._reason, self._headers, b"".join(self._pieces))
                else:
                    call.ended()
            else:
                call.refused(errors.LOST)
        self._instance.release(call)


_WITH_BODY = (b"POST", b"PUT ", b"PATC")
