"""HTTP/1.1 as the relay speaks it with scripts.

Owns: listening, reading requests off their connections, writing answers, which thread does it.
Leaves: what is answered to relay_server.py.
Always: requests that can be answered at once never wait for one that can't; a connection stays
open for the next request unless one of the two sides ends it.

`http.server` does the same with a thread for each connection. The threads of eight ranks that log
at once take the interpreter from each other, and all of that time is the training loop's.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from torchyard.shared import chunks

BLOCK_BYTES = 256 * 1024
_HEAD_BYTES = 256 * 1024
# A longer body is not gathered in memory before a thread takes it.
_QUICK_BYTES = 16 * 1024 * 1024
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 503: "Service Unavailable"}


class HttpRequest(NamedTuple):
    """Names of headers are in small letters; of a repeated one the last counts."""

    method: str
    target: str
    headers: dict[str, str]
    head_bytes: int
    closing: bool

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def size_bytes(self) -> int | None:
        """Of the body; None when it comes in chunks."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            return None
        return int(self.headers.get("content-length") or 0)


class ScriptConnection:
    """One connection of a script, used by one thread at a time.

    Attributes:
        closing: set it, and the connection ends after this answer; who has not read the
            request's body has to.
    """

    def __init__(self, opened_socket: socket.socket) -> None:
        self.socket = opened_socket
        self.received = bytearray()
        self.request: HttpRequest | None = None
        self.closing = False

    def body(self, request: HttpRequest) -> Iterator[bytes]:
        """The request's body, to be read once; waits for the script."""
        if request.headers.get("expect", "").lower() == "100-continue":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        size = request.size_bytes
        if size is None:
            return _chunks(self._readline, self._read)
        return _pieces(self._read, size)

    def next_request(self) -> HttpRequest | None:
        """Waits for it; None when the script has ended the connection."""
        while (request := _head(self.received)) is None:
            more = self.socket.recv(BLOCK_BYTES)
            if not more:
                return None
            self.received += more
        return request

    def send(self, status: int, content: bytes, kind: str = "application/json") -> None:
        """A whole answer."""
        ending = "Connection: close\r\n" if self.closing else ""
        self.write(
            f"HTTP/1.1 {status} {_REASONS.get(status, '-')}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(content)}\r\n{ending}\r\n".encode("latin-1", "replace")
            + content
        )

    def send_head(self, status: int, headers: list[tuple[str, str]]) -> None:
        """The beginning of an answer whose content is written bit by bit."""
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, '-')}"]
        lines += [f"{name}: {value}" for name, value in headers]
        self.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"))

    def write(self, content: bytes) -> None:
        self.socket.sendall(content)

    def _read(self, size_bytes: int) -> bytes:
        if not self.received:
            return self.socket.recv(size_bytes)
        block = bytes(self.received[:size_bytes])
        del self.received[:size_bytes]
        return block

    def _readline(self, limit_bytes: int) -> bytes:
        while True:
            at = self.received.find(b"\n")
            if at >= 0 or len(self.received) >= limit_bytes:
                return self._read(min(limit_bytes, at + 1 or limit_bytes))
            more = self.socket.recv(BLOCK_BYTES)
            if not more:
                return self._read(limit_bytes) if self.received else b""
            self.received += more


class Handler(Protocol):
    """Answers requests. `at_once` must not wait for anything but the disk."""

    def is_quick(self, request: HttpRequest) -> bool:
        """Whether `at_once` may be able to answer."""

    def at_once(self, connection: ScriptConnection, request: HttpRequest, content: bytes) -> bool:
        """Answer; False when that needs a thread, and nothing was sent."""

    def answer(self, connection: ScriptConnection, request: HttpRequest) -> None:
        """Answer, in a thread of its own."""


class Listener:
    """Listens on 127.0.0.1 from the start; `serve` answers until `close`.

    Args:
        port: taken when it is free, else any.
        listener: a socket that listens already, in another network.
    """

    def __init__(self, port: int, handler: Handler, listener: socket.socket | None = None) -> None:
        self._handler = handler
        self._socket = listener or _listen(port)
        self._socket.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(self._socket, select.EPOLLIN)
        self._open: dict[int, ScriptConnection] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def serve(self) -> None:
        try:
            while not self._closed:
                for number, _ in self._poll.poll():
                    connection = self._open.get(number)
                    if connection is not None:
                        self._receive(connection)
                    else:
                        self._accept()
        finally:
            with self._lock:
                self._closed = True
                open_connections = list(self._open.values())
                self._open.clear()
            for connection in open_connections:
                connection.socket.close()
            self._poll.close()
            self._socket.close()

    def close(self) -> None:
        """`serve` ends; those in the middle of an answer end it."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        try:
            opened, _ = self._socket.accept()
        except OSError:
            return
        opened.setblocking(True)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch(ScriptConnection(opened))

    def _watch(self, connection: ScriptConnection) -> None:
        with self._lock:
            if not self._closed:
                self._open[connection.socket.fileno()] = connection
                self._poll.register(connection.socket, select.EPOLLIN)
                return
        connection.socket.close()

    def _unwatch(self, connection: ScriptConnection) -> None:
        """`serve` no longer reads from it."""
        with self._lock:
            self._open.pop(connection.socket.fileno(), None)
            self._poll.unregister(connection.socket)

    def _receive(self, connection: ScriptConnection) -> None:
        try:
            more = connection.socket.recv(BLOCK_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        connection.received += more
        try:
            stays_open = bool(more) and self._answer(connection)
        except Exception as error:
            _log_error(error)
            stays_open = False
        if not stays_open:
            self._unwatch(connection)
            connection.socket.close()

    def _answer(self, connection: ScriptConnection) -> bool:
        """Answer what has come whole; False when the connection is to end."""
        while connection.received and not connection.closing:
            request = connection.request
            if request is None:
                try:
                    request = connection.request = _head(connection.received)
                except ValueError:
                    connection.closing = True
                    connection.send(400, b"this is not an HTTP request", "text/plain")
                    return False
                if request is None:
                    return True
            if not self._is_quick(request):
                return self._answer_later(connection, request)
            end = request.head_bytes + (request.size_bytes or 0)
            if len(connection.received) < end:
                return True
            content = bytes(connection.received[request.head_bytes : end])
            connection.closing = request.closing
            if not self._handler.at_once(connection, request, content):
                return self._answer_later(connection, request)
            del connection.received[:end]
            connection.request = None
        return not connection.closing

    def _is_quick(self, request: HttpRequest) -> bool:
        size = request.size_bytes
        if size is None or size > _QUICK_BYTES or "expect" in request.headers:
            return False
        return self._handler.is_quick(request)

    def _answer_later(self, connection: ScriptConnection, request: HttpRequest) -> bool:
        self._unwatch(connection)
        threading.Thread(
            target=self._answer_in_thread, args=(connection, request), name="relay", daemon=True
        ).start()
        return True

    def _answer_in_thread(self, connection: ScriptConnection, request: HttpRequest | None) -> None:
        try:
            while request is not None:
                connection.closing = request.closing
                connection.request = None
                del connection.received[: request.head_bytes]
                self._handler.answer(connection, request)
                if connection.closing:
                    break
                if not connection.received:
                    return self._watch(connection)
                # The script sent its next request before it got this response.
                request = connection.next_request()
        except Exception as error:
            _log_error(error)
        connection.socket.close()


def _listen(port: int) -> socket.socket:
    for candidate in (port, 0):
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", candidate))
            listener.listen(256)
            return listener
        except OSError:
            listener.close()
            if not candidate:
                raise
    raise AssertionError("port 0 binds or raises")


def _head(received: bytearray) -> HttpRequest | None:
    """The request that begins here; None when its head has not come whole.

    Raises:
        ValueError: this is not a request.
    """
    end = received.find(b"\r\n\r\n")
    if end < 0:
        if len(received) > _HEAD_BYTES:
            raise ValueError("the head has no end")
        return None
    first, *lines = received[:end].decode("latin-1").split("\r\n")
    method, target, version = first.split()
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError("a header has no name")
        headers[name.lower()] = value.strip()
    persistence = headers.get("connection", "").lower()
    closing = persistence == "close" or (version == "HTTP/1.0" and persistence != "keep-alive")
    request = HttpRequest(method, target, headers, end + 4, closing)
    if (request.size_bytes or 0) < 0:
        raise ValueError("the length is negative")
    return request


def _log_error(error: Exception) -> None:
    # A script that ended in the middle of a response is not worth a line.
    if not isinstance(error, OSError):
        traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)


def _pieces(read: Callable[[int], bytes], size_bytes: int) -> Iterator[bytes]:
    """`size_bytes` bytes, in blocks.

    Raises:
        OSError: they end too early.
    """
    left_bytes = size_bytes
    while left_bytes:
        block = read(min(BLOCK_BYTES, left_bytes))
        if not block:
            raise OSError("the body ended early")
        left_bytes -= len(block)
        yield block


def _chunks(readline: Callable[[int], bytes], read: Callable[[int], bytes]) -> Iterator[bytes]:
    """The content of a chunked body.

    Raises:
        OSError: it ends too early, or is not chunked.
    """
    while True:
        try:
            size_bytes = chunks.size_bytes(readline(1024))
        except ValueError:
            raise OSError("the body is not chunked as it says") from None
        if size_bytes == 0:
            while readline(65536) not in (b"\r\n", b"\n", b""):
                pass
            return
        yield from _pieces(read, size_bytes)
        readline(8)
