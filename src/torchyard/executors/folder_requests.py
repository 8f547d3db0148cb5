"""One request that came through a shared folder: to the server, and the response back.

Owns: its head and body as the blocks say, the response as blocks.
Leaves: which request is next to folder_gate.py, the blocks to shared/folder_link/.
Always: the server gets it with the token that signed it, and no other header that speaks for the
node; a body ends where its head says, so that nothing behind it is taken for another request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import io
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torchyard.shared import chunks
from torchyard.shared.folder_link import blocks
from torchyard.shared.folder_link.blocks import BLOCK_BYTES, LAST, MORE, RESET, Block, BlockId

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
_MOST_HEAD_BYTES = 64 << 10
_LONGEST_LINE = 1 << 10
_BLOCK_WAIT_S = 60.0
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.25
_ADDED = 0.05
# So long a streamed response is waited for before what is there is passed on.
_GATHER_S = 0.02
# They are about one connection, or say who asks.
_NOT_PASSED = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host"}
_NOT_PASSED |= {"authorization", "cookie", "expect", "forwarded", "content-length"}
_NOT_PASSED_PREFIXES = ("proxy-", "x-forwarded-", "x-real-")


class Gone(OSError):
    """Who asked waits no longer."""


class BadRequest(OSError):
    """What came is not a request."""


@dataclass(frozen=True)
class Head:
    """`size_bytes` is that of the body; None where it comes in chunks."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    size_bytes: int | None


class Exchange:
    """
    Args:
        folder: the attempt's.
        block_id: of the request's first block.
        token: what has signed the request.
        stopped: whether the server is ending.
    """

    def __init__(
        self, folder: Path, block_id: BlockId, token: str, stopped: Callable[[], bool]
    ) -> None:
        self._folder = folder
        self._requests = folder / blocks.REQUESTS
        self._responses = folder / block_id.connection
        self._next = block_id
        self._token = token
        self._key = blocks.key_of(token)
        self._stopped = stopped
        self._buffer = memoryview(b"")
        self._is_last = False
        self._response = dataclasses.replace(block_id, number=0, is_response=True)

    def head(self) -> Head:
        """
        Raises:
            BadRequest: it is none, or hostile.
        """
        self._read_block()
        text, end, body = bytes(self._buffer).partition(b"\r\n\r\n")
        self._buffer = memoryview(body)
        if not end or len(text) > _MOST_HEAD_BYTES:
            raise BadRequest("a request without a head")
        line, _, rest = text.partition(b"\r\n")
        return _head(line, rest + b"\r\n\r\n" if rest else b"\r\n")

    def pass_on(self, connection: http.client.HTTPConnection, head: Head) -> None:
        """Send it, and write the response.

        Raises:
            OSError, http.client.HTTPException: the server or the client was interrupted.
        """
        is_early = self._send(connection, head)
        socket = connection.sock
        response = connection.getresponse()
        try:
            self._respond(response, socket.fileno() if socket else -1, is_early)
        finally:
            response.close()

    def reset(self) -> None:
        """Tell who asked that no response comes."""
        reset_id = dataclasses.replace(self._response, number=blocks.RESET_NUMBER)
        with contextlib.suppress(OSError):
            blocks.write(self._responses, reset_id, self._key, Block(RESET, b""))

    def _send(self, connection: http.client.HTTPConnection, head: Head) -> bool:
        """Whether the server has responded before it read all."""
        connection.putrequest(head.method, head.target, skip_accept_encoding=True)
        for name, value in head.headers:
            connection.putheader(name, value)
        connection.putheader("Authorization", f"Bearer {self._token}")
        connection.putheader("Connection", "close")
        if head.size_bytes is None:
            connection.putheader("Transfer-Encoding", "chunked")
        elif head.size_bytes or head.method not in ("GET", "HEAD"):
            connection.putheader("Content-Length", str(head.size_bytes))
        body = self._chunks() if head.size_bytes is None else self._exactly(head.size_bytes)
        try:
            connection.endheaders()
            for piece in body:
                framed = b"%x\r\n%b\r\n" % (len(piece), piece) if head.size_bytes is None else piece
                connection.send(framed)
            if head.size_bytes is None:
                connection.send(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            return True
        return False

    def _exactly(self, size_bytes: int) -> Iterator[bytes]:
        left = size_bytes
        while left:
            piece = self._some(left)
            left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        """A body in chunks, without their frames."""
        while True:
            try:
                left = chunks.size_bytes(self._line())
            except ValueError as error:
                raise BadRequest("a body whose chunks have no sizes") from error
            if left <= 0:
                return
            while left:
                piece = self._some(left)
                left -= len(piece)
                yield piece
            if self._line():
                raise BadRequest("a chunk that is longer than its size")

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\r\n"):
            line += self._some(1)
            if len(line) > _LONGEST_LINE:
                raise BadRequest("a body whose chunks have no sizes")
        return line[:-2]

    def _some(self, limit: int) -> bytes:
        """At least one byte of the request."""
        while not self._buffer:
            if self._is_last:
                raise BadRequest("a request that was cut off")
            self._read_block()
        piece, self._buffer = self._buffer[:limit], self._buffer[limit:]
        return bytes(piece)

    def _read_block(self) -> None:
        name, waited = self._next.name, _Wait(_BLOCK_WAIT_S)
        while name not in blocks.names(self._requests):
            self._check_there()
            waited.pause()
        block = blocks.read(self._requests, self._next, self._key)
        if block.kind not in (MORE, LAST):
            raise blocks.Forged(f"`{name}` is not a block of a request")
        blocks.remove(self._requests, self._next)
        self._next = dataclasses.replace(self._next, number=self._next.number + 1)
        self._buffer, self._is_last = memoryview(block.content), block.kind == LAST

    def _respond(self, response: http.client.HTTPResponse, socket: int, is_early: bool) -> None:
        length = response.length
        is_open = is_early or length is None
        data = bytearray(_response_head(response, is_open))
        while True:
            piece = response.read(BLOCK_BYTES - len(data)) if length is not None else b""
            if length is None:
                piece = _gathered(response, socket, BLOCK_BYTES - len(data))
            data += piece
            is_over = not piece or (length is not None and not response.length)
            if is_over and response.length:
                raise OSError("the server's response was cut off")
            self._write(LAST if is_over else MORE, bytes(data))
            data.clear()
            if is_over:
                return

    def _write(self, kind: int, content: bytes) -> None:
        block_id = self._response
        if block_id.number >= blocks.WINDOW:
            unread = dataclasses.replace(block_id, number=block_id.number - blocks.WINDOW).name
            waited = _Wait(None)
            while unread in self._response_names():
                if self._stopped():
                    raise Gone("the server is ending")
                waited.pause()
        try:
            blocks.write(self._responses, block_id, self._key, Block(kind, content))
        except FileNotFoundError as error:
            raise Gone("the connection is closed") from error
        self._response = dataclasses.replace(block_id, number=block_id.number + 1)

    def _response_names(self) -> set[str]:
        try:
            return set(blocks.names(self._responses))
        except FileNotFoundError as error:
            raise Gone("the connection is closed") from error

    def _check_there(self) -> None:
        if self._stopped() or not self._responses.exists():
            raise Gone("the connection is closed")


class _Wait:
    def __init__(self, limit_s: float | None) -> None:
        self._since = time.monotonic()
        self._limit_s = limit_s

    def pause(self) -> None:
        waited_s = time.monotonic() - self._since
        if self._limit_s is not None and waited_s > self._limit_s:
            raise Gone("no more of the request comes")
        time.sleep(min(max(_ADDED * waited_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S))


def _head(line: bytes, rest: bytes) -> Head:
    try:
        method, target, version = line.decode("ascii").split(" ")
        parsed = http.client.parse_headers(io.BytesIO(rest))
    except (ValueError, http.client.HTTPException) as error:
        raise BadRequest("a request with a head that is not one") from error
    if method not in _METHODS or version != "HTTP/1.1" or not target.startswith("/"):
        raise BadRequest(f"a request for `{method[:20]} {target[:80]}`")
    if target.startswith("//") or not target.isprintable():
        raise BadRequest(f"a request for `{target[:80]}`")
    headers = [
        (name, value)
        for name, value in parsed.items()
        if name.lower() not in _NOT_PASSED and not name.lower().startswith(_NOT_PASSED_PREFIXES)
    ]
    sizes, codings = parsed.get_all("Content-Length") or [], parsed.get_all("Transfer-Encoding")
    if codings:
        if codings != ["chunked"] or sizes:
            raise BadRequest("a request whose body has no one length")
        return Head(method, target, headers, None)
    if len(sizes) > 1 or any(not size.isdecimal() for size in sizes):
        raise BadRequest("a request whose body has no one length")
    return Head(method, target, headers, int(sizes[0]) if sizes else 0)


def _response_head(response: http.client.HTTPResponse, is_open: bool) -> bytes:
    """
    Args:
        is_open: whether only its end says how long the body is, or no other request may follow.
    """
    lines = [f"HTTP/1.1 {response.status} {response.reason}"]
    for name, value in response.getheaders():
        if name.lower() not in ("connection", "keep-alive", "transfer-encoding"):
            lines.append(f"{name}: {value}")
    if is_open:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _gathered(response: http.client.HTTPResponse, socket: int, limit: int) -> bytes:
    """What a streamed response has now, waited for; empty at its end."""
    data = response.read1(limit)
    while data and len(data) < limit:
        try:
            if not select.select([socket], [], [], _GATHER_S)[0]:
                break
        except (OSError, ValueError):
            break  # it has ended: what is left is in memory
        piece = response.read1(limit - len(data))
        if not piece:
            break
        data += piece
    return data
