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
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from torchyard.worker.relay.proxy import chunks, pieces

_READ_BYTES = 256 * 1024
_HEAD_BYTES = 256 * 1024
# A longer body is not gathered in memory before a thread takes it.
_QUICK_BYTES = 16 * 1024 * 1024
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 503: "Service Unavailable"}


class Request(NamedTuple):
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


class Connection:
    """One connection of a script, used by one thread at a time.

    Attributes:
        closing: set it, and the connection ends after this answer; who has not read the
            request's body has to.
    """

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.came = bytearray()
        self.request: Request | None = None
        self.closing = False

    def body(self, request: Request) -> Iterator[bytes]:
        """The request's body, to be read once; waits for the script."""
        if request.headers.get("expect", "").lower() == "100-continue":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        size = request.size_bytes
        if size is None:
            return chunks(self._readline, self._read)
        return pieces(self._read, size)

    def next_request(self) -> Request | None:
        """Waits for it; None when the script has ended the connection."""
        while (request := _head(self.came)) is None:
            more = self.socket.recv(_READ_BYTES)
            if not more:
                return None
            self.came += more
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
        if not self.came:
            return self.socket.recv(size_bytes)
        found = bytes(self.came[:size_bytes])
        del self.came[:size_bytes]
        return found

    def _readline(self, limit_bytes: int) -> bytes:
        while True:
            at = self.came.find(b"\n")
            if at >= 0 or len(self.came) >= limit_bytes:
                return self._read(min(limit_bytes, at + 1 or limit_bytes))
            more = self.socket.recv(_READ_BYTES)
            if not more:
                return self._read(limit_bytes) if self.came else b""
            self.came += more


class Answers(Protocol):
    """What is answered. `at_once` must not wait for anything but the disk."""

    def is_quick(self, request: Request) -> bool:
        """Whether `at_once` may be able to answer."""

    def at_once(self, connection: Connection, request: Request, content: bytes) -> bool:
        """Answer; False when that needs a thread, and nothing was sent."""

    def answer(self, connection: Connection, request: Request) -> None:
        """Answer, in a thread of its own."""


class Listener:
    """Listens on 127.0.0.1 from the start; `serve` answers until `close`.

    Args:
        port: taken when it is free, else any.
    """

    def __init__(self, port: int, answers: Answers) -> None:
        self._answers = answers
        self._socket = _listen(port)
        self._poll = select.epoll()
        self._poll.register(self._socket, select.EPOLLIN)
        self._open: dict[int, Connection] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def port(self) -> int:
        found: int = self._socket.getsockname()[1]
        return found

    def serve(self) -> None:
        try:
            while not self._closed:
                for number, _ in self._poll.poll():
                    connection = self._open.get(number)
                    if connection is not None:
                        self._hear(connection)
                    else:
                        self._accept()
        finally:
            with self._lock:
                self._closed = True
                left = list(self._open.values())
                self._open.clear()
            for connection in left:
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
        self._wait_for(Connection(opened))

    def _wait_for(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed:
                self._open[connection.socket.fileno()] = connection
                self._poll.register(connection.socket, select.EPOLLIN)
                return
        connection.socket.close()

    def _leave(self, connection: Connection) -> None:
        """`serve` looks after it no more."""
        with self._lock:
            self._open.pop(connection.socket.fileno(), None)
            self._poll.unregister(connection.socket)

    def _hear(self, connection: Connection) -> None:
        try:
            more = connection.socket.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        connection.came += more
        try:
            goes_on = bool(more) and self._answer(connection)
        except Exception as error:
            _tell(error)
            goes_on = False
        if not goes_on:
            self._leave(connection)
            connection.socket.close()

    def _answer(self, connection: Connection) -> bool:
        """Answer what has come whole; False when the connection is to end."""
        while connection.came and not connection.closing:
            request = connection.request
            if request is None:
                try:
                    request = connection.request = _head(connection.came)
                except ValueError:
                    connection.closing = True
                    connection.send(400, b"this is no HTTP request", "text/plain")
                    return False
                if request is None:
                    return True
            if not self._is_quick(request):
                return self._hand_over(connection, request)
            end = request.head_bytes + (request.size_bytes or 0)
            if len(connection.came) < end:
                return True
            content = bytes(connection.came[request.head_bytes : end])
            connection.closing = request.closing
            if not self._answers.at_once(connection, request, content):
                return self._hand_over(connection, request)
            del connection.came[:end]
            connection.request = None
        return not connection.closing

    def _is_quick(self, request: Request) -> bool:
        size = request.size_bytes
        if size is None or size > _QUICK_BYTES or "expect" in request.headers:
            return False
        return self._answers.is_quick(request)

    def _hand_over(self, connection: Connection, request: Request) -> bool:
        self._leave(connection)
        threading.Thread(
            target=self._answer_in_thread, args=(connection, request), name="relay", daemon=True
        ).start()
        return True

    def _answer_in_thread(self, connection: Connection, request: Request | None) -> None:
        try:
            while request is not None:
                connection.closing = request.closing
                connection.request = None
                del connection.came[: request.head_bytes]
                self._answers.answer(connection, request)
                if connection.closing:
                    break
                if not connection.came:
                    return self._wait_for(connection)
                # The script did not wait for its answer before it asked on.
                request = connection.next_request()
        except Exception as error:
            _tell(error)
        connection.socket.close()


def _listen(port: int) -> socket.socket:
    for one in (port, 0):
        opened = socket.socket()
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(("127.0.0.1", one))
            opened.listen(256)
            opened.setblocking(False)
            return opened
        except OSError:
            opened.close()
            if not one:
                raise
    raise AssertionError("any port is free, or none")


def _head(came: bytearray) -> Request | None:
    """The request that begins here; None when its head has not come whole.

    Raises:
        ValueError: this is no request.
    """
    end = came.find(b"\r\n\r\n")
    if end < 0:
        if len(came) > _HEAD_BYTES:
            raise ValueError("a head without end")
        return None
    first, *lines = came[:end].decode("latin-1").split("\r\n")
    method, target, version = first.split()
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError("a header without a name")
        headers[name.lower()] = value.strip()
    kept = headers.get("connection", "").lower()
    closing = kept == "close" or (version == "HTTP/1.0" and kept != "keep-alive")
    request = Request(method, target, headers, end + 4, closing)
    if (request.size_bytes or 0) < 0:
        raise ValueError("a length below zero")
    return request


def _tell(error: Exception) -> None:
    # A script that is gone in the middle of an answer is no news.
    if not isinstance(error, OSError):
        traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
