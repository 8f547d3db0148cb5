"""A client's connection: requests in, answers out.

Owns: reading requests in their order, how much of a body is held, the pace that a client has to
keep, writing answers and refusals.
Leaves: which deployment answers to routes.py, connections in all to connections.py.
Always: answers leave in the order of their requests; a body is read no faster than the instance
takes it; a client that is slow, silent or endless loses its connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol, cast

import httptools

from torchyard.endpoints.router import errors
from torchyard.endpoints.router.calls import Call, Headers
from torchyard.endpoints.router.collecting import Sample
from torchyard.endpoints.router.connections import Connections
from torchyard.endpoints.router.deployments import Deployment
from torchyard.endpoints.router.errors import Refusal
from torchyard.endpoints.router.pace import Pace
from torchyard.endpoints.router.request_heads import OF_CONNECTION, BadHead, RequestHead

HELD_BYTES = 256 << 10
"""A body is sent on when it is whole, or this much of it has come."""
STREAM_AFTER_S = 0.1
"""A chunked body is sent on after this time however little has come of it."""
_HEAD_MOST_BYTES = 64 << 10
_MOST_HEADERS = 256
_MOST_PIPELINED = 16
_HEAD_S = 30.0
_IDLE_S = 75.0
_GRACE_S = 30.0
_SKIP_S = 5.0
_FIRST_REQUEST_S = 1.0
_WRITE_HIGH_BYTES = 1 << 20
_DROPPED = OF_CONNECTION | {
    b"set-cookie", b"x-ms-request-id", b"x-ms-client-request-id", b"azureml-model-deployment",
    b"ms-azureml-model-error-statuscode", b"ms-azureml-model-error-reason",
}  # fmt: skip


class Front(Protocol):
    """What a client's connection needs of the router."""

    loop: asyncio.AbstractEventLoop
    connections: Connections
    held_bytes: int
    is_stopping: bool

    @property
    def is_full(self) -> bool: ...

    def route(self, call: ClientCall) -> None: ...

    def admit(self, call: ClientCall, target: Deployment) -> None: ...

    def record(self, call: ClientCall, seconds: float) -> None: ...

    def record_refusal(self, call: ClientCall, refusal: Refusal) -> None: ...


class ClientCall(Call):
    """One request of a client."""

    def __init__(self, client: ClientConnection, head: RequestHead, now: float) -> None:
        super().__init__()
        self.client = client
        self.request = head
        self.begun_at = now
        self.keeps_alive = False
        self.is_http_10 = False
        self.held_bytes = self.body_bytes = 0
        self.is_routed = self.is_admitted = self.is_answering = False
        self.is_chunked_answer = False
        self.status = 0
        self.stream_timer: asyncio.TimerHandle | None = None
        self.target: Deployment | None = None
        self.sample: Sample | None = None

    def answered(self, status: int, reason: bytes, headers: Headers, body: bytes) -> None:
        self.client.answer(self, status, reason, headers, body)

    def begun(self, status: int, reason: bytes, headers: Headers, length: int | None) -> None:
        self.client.begin_answer(self, status, reason, headers, length)

    def piece(self, data: bytes) -> None:
        self.client.write_piece(self, data)

    def ended(self) -> None:
        self.client.end_answer(self)

    def upgraded(self, reason: bytes, headers: Headers, data: bytes) -> None:
        self.client.switch(self, reason, headers, data)

    def refused(self, refusal: Refusal) -> None:
        self.client.refuse(self, refusal)

    def body_paused(self) -> None:
        self.client.pause_reading()

    def body_resumed(self) -> None:
        self.client.resume_reading()

    def sent(self) -> None:
        self.client.router.held_bytes -= self.held_bytes
        self.held_bytes = 0
        if not self.is_whole:
            self.client.resume_reading()


class ClientConnection(asyncio.Protocol):
    """
    Args:
        router: what it belongs to.
    """

    def __init__(self, router: Front) -> None:
        self.router = router
        self.host = ""
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._loop = router.loop
        self._parser = httptools.HttpRequestParser(self)
        self._calls: deque[ClientCall] = deque()
        self._reading: ClientCall | None = None
        self._head: RequestHead | None = None
        self._head_bytes = self._headers_count = self._fields_bytes = 0
        self._tunnel: ClientCall | None = None
        self._is_refused = self._is_closing = self._is_paused = self._is_writing_paused = False
        now = self._loop.time()
        self._since = now
        self._is_new = True
        self._body_pace = self._answer_pace = Pace(_GRACE_S, now)
        self._new_bytes = self._unsent_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if isinstance(peer, tuple) else ""
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        if not self.router.connections.admit(self):
            self._is_refused = self._is_closing = True
            self._write_refusal(errors.CROWDED)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.router.connections.forget(self)
        self._is_closing = True
        self._cancel_all()
        if self._tunnel is not None:
            self._tunnel.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether no request is at work, nor has begun to come, nor is an answer unsent."""
        is_free = not self._calls and self._tunnel is None and not self._head_bytes
        return is_free and not self.transport.get_write_buffer_size()

    def data_received(self, data: bytes) -> None:
        if self._is_refused or (self._is_closing and self._reading is None):
            return
        if self._tunnel is not None:
            if self._tunnel.connection is not None:
                self._tunnel.connection.send_tunnel(data)
            return
        self._is_new = False
        if self._reading is None:
            if not self._head_bytes:
                self._since = self._loop.time()
            self._head_bytes += len(data)
        else:
            self._new_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = httptools.HttpRequestParser(self)
            rest = data[upgrade.args[0] :]
            if rest:
                self._more_than_upgrade(rest)
        except (httptools.HttpParserError, httptools.HttpParserCallbackError):
            self._refuse_all(errors.LONG_HEAD if self._is_long else errors.BAD_REQUEST)
            return
        if self._reading is None and self._head_bytes > _HEAD_MOST_BYTES:
            self._refuse_all(errors.LONG_HEAD)

    def _more_than_upgrade(self, rest: bytes) -> None:
        call = self._calls[-1] if self._calls else None
        if call is not None and call.request.upgrade:
            # No client speaks the new protocol before it knows that the change has come.
            self._refuse_all(errors.BAD_REQUEST)
        else:
            self.data_received(rest)

    @property
    def _is_long(self) -> bool:
        return self._headers_count > _MOST_HEADERS or self._fields_bytes > _HEAD_MOST_BYTES

    def on_message_begin(self) -> None:
        if len(self._calls) >= _MOST_PIPELINED or self._is_closing:
            raise ValueError("too many requests were sent ahead of their answers")
        self._head = RequestHead()
        self._headers_count = self._fields_bytes = 0

    def on_url(self, url: bytes) -> None:
        if self._head is not None:
            self._head.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers_count += 1
        self._fields_bytes += len(name) + len(value)
        if self._is_long:
            raise ValueError("too many headers, or too long ones")
        if self._head is not None:
            self._head.add(name, value)
        # What comes without a head are trailers, which are dropped.

    def on_headers_complete(self) -> None:
        head = self._head
        assert head is not None
        parser = self._parser
        version = parser.get_http_version()
        head.end(parser.get_method(), version)
        self._head = None
        now = self._loop.time()
        call = ClientCall(self, head, now)
        call.is_http_10 = version == "1.0"
        call.keeps_alive = parser.should_keep_alive()
        call.length = head.length
        call.upgrade = head.upgrade
        call.is_whole = False
        call.is_head_request = head.method == b"HEAD"
        self._head_bytes = 0
        self._reading = call
        self._body_pace, self._new_bytes = Pace(_GRACE_S, now), 0
        self._calls.append(call)
        if self._calls[0] is call:
            self.router.route(call)

    def on_body(self, body: bytes) -> None:
        call = self._reading
        if call is None or call.is_done:
            return
        call.body_bytes += len(body)
        if call.target is not None and call.body_bytes > call.target.row.max_body_bytes:
            call.refused(errors.TOO_LARGE)
            call.leave()
            return
        if call.sample is not None and call.is_admitted:
            call.sample.add_input(body)
        if call.connection is not None:
            call.connection.send_body(body)
            return
        call.parts.append(body)
        call.held_bytes += len(body)
        self.router.held_bytes += len(body)
        if call.held_bytes >= HELD_BYTES or self.router.is_full:
            self._admit(call)
            if call.connection is None and not call.is_done:
                self.pause_reading()

    def on_message_complete(self) -> None:
        call, self._reading = self._reading, None
        if call is None:
            return
        call.is_whole = True
        if call.is_done:
            if self._is_closing:
                self.transport.close()
            return
        if call.connection is not None:
            call.connection.end_body()
            if call.target is not None:
                call.target.start_timer(call)
            return
        if call.instance is not None and call.target is not None:
            call.target.start_timer(call)  # its connection is being opened
        if not call.is_admitted and call.length is None:
            call.length = call.body_bytes
        self._admit(call)
        if len(self._calls) > 1:
            self.pause_reading()

    def routed(self, call: ClientCall, target: Deployment) -> None:
        """`target` answers; called once, at once or later."""
        if call.is_done:
            return
        call.is_routed, call.target = True, target
        limit = target.row.max_body_bytes
        if (call.length or 0) > limit or call.body_bytes > limit:
            self.refuse(call, errors.TOO_LARGE)
            return
        if call.request.expects_continue and not call.body_bytes and not call.is_whole:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if call.is_whole or call.held_bytes >= HELD_BYTES:
            self._admit(call)
            return
        self.resume_reading()
        if call.length is None:
            call.stream_timer = self._loop.call_later(STREAM_AFTER_S, self._admit, call)

    def _admit(self, call: ClientCall) -> None:
        if call.is_admitted or not call.is_routed or call.is_done or call.target is None:
            return
        call.is_admitted = True
        if call.stream_timer is not None:
            call.stream_timer.cancel()
        try:
            call.head = call.request.for_instance()
        except BadHead:
            self._refuse_all(errors.BAD_REQUEST)
            return
        self.router.admit(call, call.target)

    def answer(
        self, call: ClientCall, status: int, reason: bytes, headers: Headers, body: bytes
    ) -> None:
        """Send a whole answer."""
        head = self._answer_head(call, status, reason, headers, len(body))
        if call.sample is not None:
            call.sample.add_output(body)
        self.transport.write(head if call.is_head_request else head + body)
        self._done(call)

    def begin_answer(
        self, call: ClientCall, status: int, reason: bytes, headers: Headers, length: int | None
    ) -> None:
        call.stop_timer()
        head = self._answer_head(call, status, reason, headers, length)
        self.transport.write(head)
        call.is_answering = True
        if self._is_writing_paused and call.connection is not None:
            call.connection.pause()
        elif call.target is not None:
            call.target.start_timer(call)

    def write_piece(self, call: ClientCall, data: bytes) -> None:
        if call.sample is not None:
            call.sample.add_output(data)
        if call.is_chunked_answer:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self.transport.write(data)
        is_read = not self._is_writing_paused and call is not self._tunnel
        if is_read and call.target is not None:
            call.target.start_timer(call)

    def end_answer(self, call: ClientCall) -> None:
        if call is self._tunnel:
            call.is_done = True
            self.transport.close()
            return
        if call.is_chunked_answer:
            self.transport.write(b"0\r\n\r\n")
        self._done(call)

    def switch(self, call: ClientCall, reason: bytes, headers: Headers, data: bytes) -> None:
        """Bytes go both ways from now on."""
        lines = [b"%b: %b\r\n" % line for line in headers if line[0] not in _DROPPED]
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: %b\r\n"
            b"x-ms-request-id: %b\r\n%b\r\n%b"
            % (call.upgrade, call.request.request_id, b"".join(lines), data)
        )
        self._tunnel = call
        self._calls.clear()
        call.status = 101
        self.router.record(call, self._loop.time() - call.begun_at)
        self.resume_reading()

    def refuse(self, call: ClientCall, refusal: Refusal) -> None:
        """Say why no answer of a model comes."""
        if call.is_done:
            return
        self.router.record_refusal(call, refusal)
        if call.is_answering or call is self._tunnel:
            call.is_done = True
            call.stop_timer()
            # The client sees that what it has is not whole.
            self.transport.abort()
            return
        call.status = refusal.status
        self._drop_held(call)
        is_last = not call.is_whole or not call.keeps_alive or self.router.is_stopping
        self._write_refusal(refusal, is_last, call)
        call.keeps_alive = not is_last
        self._done(call, is_counted=False)

    def pause_reading(self) -> None:
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused and not self.transport.is_closing():
            self._is_paused = False
            self._body_pace.pause(self._loop.time())
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        call = self._current()
        if call is not None and call.connection is not None:
            call.connection.pause()
            call.stop_timer()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        call = self._current()
        if call is not None and call.connection is not None:
            call.connection.resume()
            if call is not self._tunnel and call.target is not None:
                call.target.start_timer(call)

    def abort(self) -> None:
        self.transport.abort()

    def close_if_idle(self) -> None:
        """Close a connection without a request; with one, close it after its answer.

        What has just been opened is about to send its first.
        """
        is_waited_for = self._is_new and self._loop.time() - self._since < _FIRST_REQUEST_S
        if self.is_idle and not is_waited_for:
            self.transport.close()

    def check(self, now: float) -> None:
        """Hang up on a client that is too slow; called every few seconds."""
        before_bytes = self._unsent_bytes
        self._unsent_bytes = self.transport.get_write_buffer_size()
        if not before_bytes or self._unsent_bytes > before_bytes:
            self._answer_pace = Pace(_GRACE_S, now)
        elif not self._answer_pace.is_kept(now, before_bytes - self._unsent_bytes):
            self.transport.abort()
            return
        if self._tunnel is not None:
            return
        if self._reading is not None:
            self._check_body(self._reading, now)
        elif self._head_bytes:
            if now - self._since > _HEAD_S:
                self._refuse_all(errors.SLOW_REQUEST)
        elif not self._calls and not self._unsent_bytes and now - self._since > _IDLE_S:
            self.transport.close()

    def _check_body(self, call: ClientCall, now: float) -> None:
        new_bytes, self._new_bytes = self._new_bytes, 0
        if self._is_paused:
            self._body_pace.pause(now)
        elif not self._body_pace.is_kept(now, new_bytes):
            if call.is_done or call.is_answering:
                self.transport.close()
                return
            self.refuse(call, errors.SLOW_REQUEST)
            call.leave()

    def _current(self) -> ClientCall | None:
        return self._tunnel or (self._calls[0] if self._calls else None)

    def _cancel_all(self) -> None:
        for call in self._calls:
            self._drop_held(call)
            call.cancel()
        self._calls.clear()

    def _drop_held(self, call: ClientCall) -> None:
        self.router.held_bytes -= call.held_bytes
        call.held_bytes = 0
        call.parts = []

    def _answer_head(
        self, call: ClientCall, status: int, reason: bytes, headers: Headers, length: int | None
    ) -> bytes:
        lines = []
        if status >= 400:
            lines.append(b"HTTP/1.1 424 Failed Dependency\r\n")
            lines.append(b"ms-azureml-model-error-statuscode: %d\r\n" % status)
            lines.append(b"ms-azureml-model-error-reason: model_error\r\n")
            call.status = 424
        else:
            lines.append(b"HTTP/1.1 %d %b\r\n" % (status, reason))
            call.status = status
        length_of_head = b""
        for name, value in headers:
            if name == b"content-type" and call.sample is not None:
                call.sample.output_type = value
            if name not in _DROPPED:
                lines.append(b"%b: %b\r\n" % (name, value))
            elif name == b"content-length":
                length_of_head = value
        lines += _identity(call)
        if not call.is_whole or self.router.is_stopping:
            call.keeps_alive = False
        if call.is_head_request:
            if length_of_head.isdigit():
                lines.append(b"content-length: %b\r\n" % length_of_head)
        elif status in (204, 304):
            pass
        elif length is not None:
            lines.append(b"content-length: %d\r\n" % length)
        elif call.is_http_10:
            call.keeps_alive = False
        else:
            call.is_chunked_answer = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not call.keeps_alive:
            lines.append(b"connection: close\r\n")
        elif call.is_http_10:
            lines.append(b"connection: keep-alive\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _write_refusal(
        self, refusal: Refusal, is_last: bool = True, call: ClientCall | None = None
    ) -> None:
        body = refusal.body()
        lines = [
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            % (refusal.status, refusal.reason.encode(), len(body))
        ]
        if refusal.retry_after_s:
            lines.append(b"retry-after: %d\r\n" % refusal.retry_after_s)
        if refusal.status == 401:
            lines.append(b"www-authenticate: Bearer\r\n")
        if call is not None:
            lines += _identity(call)
        lines.append(b"connection: close\r\n\r\n" if is_last else b"\r\n")
        is_bare = call is not None and call.is_head_request
        self.transport.write(b"".join(lines) if is_bare else b"".join(lines) + body)

    def _refuse_all(self, refusal: Refusal) -> None:
        """The connection can't be read any further."""
        if self._is_refused or self._is_closing:
            self.transport.close()
            return
        self._is_refused = self._is_closing = True
        current = self._calls[0] if self._calls else None
        if current is not None and current.is_answering:
            self.transport.abort()
            return
        if not self.transport.is_closing():
            self._write_refusal(refusal)
            self.transport.close()
        self._cancel_all()

    def _done(self, call: ClientCall, is_counted: bool = True) -> None:
        """The answer is written; go on with the next request."""
        call.is_done = True
        call.stop_timer()
        if call.stream_timer is not None:
            call.stream_timer.cancel()
        now = self._loop.time()
        if is_counted:
            self.router.record(call, now - call.begun_at)
        if self._calls and self._calls[0] is call:
            self._calls.popleft()
        self._since = now
        if not call.keeps_alive or not call.is_whole:
            self._close_after(call)
        elif self._calls:
            # Not deeper in the stack with every request that was sent ahead.
            self._loop.call_soon(self._begin_next)
        else:
            self.resume_reading()

    def _begin_next(self) -> None:
        if self._calls and not self._calls[0].is_routed and not self._is_closing:
            self.router.route(self._calls[0])

    def _close_after(self, call: ClientCall) -> None:
        self._is_closing = True
        self._cancel_all()
        if call.is_whole:
            self.transport.close()
        else:
            # A client that still sends would lose the answer with its connection.
            self.resume_reading()
            self._loop.call_later(_SKIP_S, self.transport.close)


def _identity(call: ClientCall) -> list[bytes]:
    """Headers that say which request is answered, and by which deployment."""
    request = call.request
    lines = [b"x-ms-request-id: %b\r\n" % request.request_id]
    if request.client_request_id:
        lines.append(b"x-ms-client-request-id: %b\r\n" % request.client_request_id)
    if call.target is not None:
        lines.append(b"azureml-model-deployment: %b\r\n" % call.target.name_bytes)
    return lines
