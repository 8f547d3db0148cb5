"""The node's end: a connection of http.client whose bytes go through a shared folder.

Owns: requests as numbered files, waiting for the files of responses, the connection's folder.
Leaves: the files to blocks.py, the server's end to executors/folder_gate.py, HTTP to http.client.
Always: standard library, Python 3.9; the token signs, and is not sent; one request at a time, and
no more of it lies there than a window; a response that is not signed for its request is an error.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional
from urllib.parse import SplitResult

from torchyard.shared.folder_link import blocks
from torchyard.shared.folder_link.blocks import BLOCK_BYTES, LAST, MORE, RESET, Block, BlockId

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.5
# What waiting adds to a wait, at most, as a part of it.
_ADDED = 0.05
_BEARER = "Bearer "
_CLOSED = (-1, -1)


class FolderConnection(http.client.HTTPConnection):
    """
    Args:
        parts: the address of an attempt's folder, see `blocks.url_of`; paths of requests begin
            with it, and the server gets what follows.
    """

    def __init__(self, parts: SplitResult, timeout_s: float) -> None:
        super().__init__("shared-folder", timeout=timeout_s)
        self._prefix = parts.path.rstrip("/")
        self._folder = blocks.folder_of(parts.geturl())
        self._token = ""

    def connect(self) -> None:
        """
        Raises:
            OSError: the attempt's folder is not there, or not ours alone.
        """
        self.sock: Any = FolderSocket(self._folder, self.timeout)

    def putrequest(self, method: str, url: str, *args: Any, **options: Any) -> None:
        self._token = ""
        super().putrequest(method, url.removeprefix(self._prefix) or "/", *args, **options)

    def putheader(self, header: Any, *values: Any) -> None:
        if str(header).lower() == "authorization":
            self._token = str(values[0]).removeprefix(_BEARER)
        else:
            super().putheader(header, *values)

    def endheaders(self, *args: Any, **options: Any) -> None:
        if not self._token:
            raise OSError("only requests with a token of the attempt go through a shared folder")
        if self.sock is None:
            self.connect()
        self.sock.begin(blocks.key_of(self._token))
        super().endheaders(*args, **options)


class FolderSocket:
    """What http.client uses of a socket.

    Args:
        timeout_s: how long one wait may take; None for no limit.
    """

    def __init__(self, folder: Path, timeout_s: Optional[float]) -> None:
        self._attempt = folder.name
        self._requests = folder / blocks.REQUESTS
        self._timeout_s = timeout_s
        self._name = blocks.new_connection()
        self._folder = folder / self._name
        self._pid = os.getpid()
        self._silent = _CLOSED
        self._key = b""
        self._request = 0
        self._number = 0
        self._buffer = bytearray()
        self._sends = False
        self._readers = 0
        self._is_closed = False
        blocks.check_private(folder)
        os.mkdir(self._folder, 0o700)
        # Something to poll for who asks whether the other end has closed: nobody ever does.
        self._silent = os.pipe()

    def begin(self, key: bytes) -> None:
        """Begin the next request; `key` signs it."""
        for name in blocks.names(self._folder):  # of the last response
            with contextlib.suppress(OSError):
                os.unlink(self._folder / name)
        self._key = key
        self._request += 1
        self._number = 0
        self._buffer.clear()
        self._sends = True

    def sendall(self, data: Any) -> None:
        """
        Raises:
            BrokenPipeError: the server has responded already; the response says why.
            TimeoutError: it reads no further.
        """
        for piece in (data,) if isinstance(data, (bytes, bytearray, memoryview)) else data:
            left = memoryview(piece)
            while left:
                some = left[: BLOCK_BYTES - len(self._buffer)]
                self._buffer += some
                left = left[len(some) :]
                if len(self._buffer) == BLOCK_BYTES:
                    self._put(MORE)

    def makefile(self, mode: str = "rb", *_: Any, **__: Any) -> io.BufferedReader:
        """End the request; its response."""
        assert mode == "rb", mode
        if self._sends:
            with contextlib.suppress(BrokenPipeError):
                self._put(LAST)
        self._sends = False
        self._readers += 1
        block_id = BlockId(self._attempt, self._name, self._request, 0, True)
        return io.BufferedReader(_Response(self, block_id, self._key), 1 << 16)

    def block(self, block_id: BlockId, key: bytes) -> Block:
        """A block of a response, waited for.

        Raises:
            TimeoutError: it does not come.
            ConnectionResetError: the server gave the request up, or this connection.
        """
        reset = BlockId(
            block_id.attempt, block_id.connection, block_id.request, blocks.RESET_NUMBER, True
        )
        wait = _Wait(self._timeout_s)
        while True:
            listed = self._names()
            if block_id.name in listed:
                block = blocks.read(self._folder, block_id, key)
                blocks.remove(self._folder, block_id)
                return block
            if reset.name in listed and blocks.read(self._folder, reset, key).kind == RESET:
                raise ConnectionResetError("the server gave the request up")
            wait.pause("the server does not answer in the shared folder")

    def reader_closed(self) -> None:
        self._readers -= 1
        self._end()

    def settimeout(self, timeout_s: Optional[float]) -> None:
        self._timeout_s = timeout_s

    def fileno(self) -> int:
        """Of something that is never ready."""
        return self._silent[0]

    def shutdown(self, how: int) -> None:
        pass

    def close(self) -> None:
        """A response that is read still is read to its end."""
        self._is_closed = True
        self._end()

    def __del__(self) -> None:
        self._readers = 0
        self.close()

    def _put(self, kind: int) -> None:
        self._wait_for_window()
        block_id = BlockId(self._attempt, self._name, self._request, self._number, False)
        blocks.write(self._requests, block_id, self._key, Block(kind, bytes(self._buffer)))
        self._buffer.clear()
        self._number += 1

    def _wait_for_window(self) -> None:
        if self._number < blocks.WINDOW:
            return
        number = self._number - blocks.WINDOW
        awaited = BlockId(self._attempt, self._name, self._request, number, False).name
        wait = _Wait(self._timeout_s)
        while awaited in blocks.names(self._requests):
            if self._names():
                raise BrokenPipeError("the server has responded before it read all")
            wait.pause("the server reads no further in the shared folder")
        if self._names():
            raise BrokenPipeError("the server has responded before it read all")

    def _names(self) -> Iterable[str]:
        try:
            return set(blocks.names(self._folder))
        except FileNotFoundError as error:
            raise ConnectionResetError("the connection's folder was removed") from error

    def _end(self) -> None:
        if not self._is_closed or self._readers > 0 or self._silent == _CLOSED:
            return
        for descriptor in self._silent:
            os.close(descriptor)
        self._silent = _CLOSED
        if self._pid != os.getpid():
            return  # a child has it from its parent, who uses it
        shutil.rmtree(self._folder, ignore_errors=True)


class _Response(io.RawIOBase):
    """The bytes of one response."""

    def __init__(self, socket: FolderSocket, block_id: BlockId, key: bytes) -> None:
        super().__init__()
        self._socket: Optional[FolderSocket] = socket
        self._next_block = block_id
        self._key = key
        self._left = memoryview(b"")
        self._is_last = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left and not self._is_last:
            assert self._socket is not None
            block = self._socket.block(self._next_block, self._key)
            if block.kind not in (MORE, LAST):
                raise blocks.Forged("this block is not one of a response")
            block_id = self._next_block
            self._next_block = BlockId(
                block_id.attempt, block_id.connection, block_id.request, block_id.number + 1, True
            )
            self._left, self._is_last = memoryview(block.content), block.kind == LAST
        some = self._left[: len(buffer)]
        buffer[: len(some)] = some
        self._left = self._left[len(some) :]
        return len(some)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.reader_closed()
            self._socket = None
        super().close()


class _Wait:
    """Pauses that grow with what was waited for already, and end with its limit."""

    def __init__(self, limit_s: Optional[float]) -> None:
        self._since = time.monotonic()
        self._limit_s = limit_s

    def pause(self, message: str) -> None:
        """
        Raises:
            TimeoutError: with the message, after the limit.
        """
        waited_s = time.monotonic() - self._since
        if self._limit_s is not None and waited_s >= self._limit_s:
            raise TimeoutError(message)
        time.sleep(min(max(_ADDED * waited_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S))
