"""Where request bodies are while they arrive and are worked on.

Owns: the bytes in flight of all connections, in memory and on disk; the folder `spool/` of the
home; how much memory the bodies that are worked on may take at once; the threads that write bodies.
Leaves: reading them from the connection to request_bodies.py.
Always: no spooled body outlives its request, nor the server's process: its file has no name. For
use in the server's event loop alone.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from torchyard.base.errors import ServerBusy

IN_MEMORY_BYTES = 1 << 20
"""A longer body goes to disk."""
_MEMORY_BYTES = 16 << 20
_DISK_BYTES = 2 << 30
_WORK_BYTES = 24 << 20
_WAIT_LIMIT_S = 30.0
_WRITE_BYTES = 16 << 10
_THREADS = 6
_STALE_S = 3600.0
_HINT = "try again in a few seconds"


_limiter: RunVar[anyio.CapacityLimiter] = RunVar("torchyard.body_threads")
_T = TypeVar("_T")
_P = ParamSpec("_P")


async def in_body_thread(act: Callable[_P, _T], *args: _P.args, **named: _P.kwargs) -> _T:
    """Run in one of the few threads for bodies, so that they never take all there are."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_THREADS)
        _limiter.set(limiter)
    return await anyio.to_thread.run_sync(partial(act, *args, **named), limiter=limiter)


class Budget:
    """Bytes that may be taken, and are given back."""

    def __init__(self, size_bytes: int) -> None:
        self.free_bytes = size_bytes

    def take(self, count: int) -> bool:
        if count > self.free_bytes:
            return False
        self.free_bytes -= count
        return True

    def give(self, count: int) -> None:
        self.free_bytes += count


class WorkGate:
    """Lets bodies be worked on, in the order in which they arrived, as long as memory lasts.

    What takes more than all of it is worked on alone.
    """

    def __init__(self, size_bytes: int = _WORK_BYTES, wait_limit_s: float = _WAIT_LIMIT_S) -> None:
        self._size_bytes = size_bytes
        self._used_bytes = 0
        self._wait_limit_s = wait_limit_s
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def entered(self, need_bytes: int) -> AsyncIterator[None]:
        """
        Raises:
            ServerBusy: the others took too long.
        """
        need_bytes = min(need_bytes, self._size_bytes)
        if self._queue or self._used_bytes + need_bytes > self._size_bytes:
            await self._wait(need_bytes)
        else:
            self._used_bytes += need_bytes
        try:
            yield
        finally:
            self._used_bytes -= need_bytes
            self._admit_next()

    async def _wait(self, need_bytes: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._queue.append((need_bytes, turn))
        try:
            await asyncio.wait_for(asyncio.shield(turn), self._wait_limit_s)
        except BaseException as error:
            if turn.done():
                self._used_bytes -= need_bytes
            else:
                self._queue.remove((need_bytes, turn))
            self._admit_next()
            if isinstance(error, asyncio.TimeoutError):
                raise ServerBusy("the server works on too many large requests", _HINT) from None
            raise

    def _admit_next(self) -> None:
        while self._queue and self._used_bytes + self._queue[0][0] <= self._size_bytes:
            need_bytes, turn = self._queue.popleft()
            self._used_bytes += need_bytes
            turn.set_result(None)


class BodySpool:
    """Of one server process.

    Args:
        folder: for bodies on disk; made when it is first needed.
        disk_bytes: of all of them together.
    """

    def __init__(
        self, folder: Path, memory_bytes: int = _MEMORY_BYTES, disk_bytes: int = _DISK_BYTES
    ) -> None:
        self._folder = folder
        self.memory = Budget(memory_bytes)
        self.disk = Budget(disk_bytes)
        self.gate = WorkGate()

    def clear(self) -> None:
        """Remove what a killed server left: files have a name for a moment on some file systems."""
        with suppress(FileNotFoundError):
            for file in self._folder.iterdir():
                with suppress(OSError):
                    # Of another server that shares the home, it may be used right now.
                    if time.time() - file.stat().st_mtime > _STALE_S:
                        file.unlink()

    def new_file(self) -> IO[bytes]:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return tempfile.TemporaryFile(dir=self._folder)


class ArrivingBody:
    """One body: in memory, and on disk as soon as it is long or memory is short."""

    def __init__(self, spool: BodySpool) -> None:
        self._spool = spool
        self._buffer = bytearray()
        self._memory_bytes = 0
        self._disk_bytes = 0
        self._file: IO[bytes] | None = None
        self.size_bytes = 0

    @property
    def is_spooled(self) -> bool:
        return self._file is not None

    async def add(self, chunk: bytes) -> None:
        """
        Raises:
            ServerBusy: bodies take all the disk space that they may take.
            OSError: it can't be written.
        """
        self.size_bytes += len(chunk)
        if self._file is None:
            if self.size_bytes <= IN_MEMORY_BYTES and self._spool.memory.take(len(chunk)):
                self._memory_bytes += len(chunk)
                self._buffer += chunk
                return
            self._file = await in_body_thread(self._spool.new_file)
        self._buffer += chunk
        if len(self._buffer) >= _WRITE_BYTES:
            await self._write()

    async def _write(self) -> None:
        assert self._file is not None
        if not self._spool.disk.take(len(self._buffer)):
            raise ServerBusy("the server holds too many large requests", _HINT)
        self._disk_bytes += len(self._buffer)
        content, self._buffer = self._buffer, bytearray()
        await in_body_thread(self._file.write, content)
        self._spool.memory.give(self._memory_bytes)
        self._memory_bytes = 0

    def content(self) -> bytes:
        """All of it; blocks on the disk if it is spooled."""
        if self._file is None:
            return bytes(self._buffer)
        # Whole: joining it with what was not written yet would take twice the memory.
        self._file.seek(0, os.SEEK_END)
        self._file.write(self._buffer)
        self._buffer = bytearray()
        self._file.seek(0)
        return self._file.read()

    def chunks(self) -> Iterator[bytes]:
        """All of it, bit by bit; blocks as `content` does."""
        if self._file is not None:
            self._file.seek(0)
            while chunk := self._file.read(IN_MEMORY_BYTES):
                yield chunk
        if self._buffer:
            yield bytes(self._buffer)

    def drop(self) -> None:
        """Give back what it took."""
        self._spool.memory.give(self._memory_bytes)
        self._spool.disk.give(self._disk_bytes)
        self._memory_bytes = self._disk_bytes = 0
        self._buffer = bytearray()
        if self._file is not None:
            self._file.close()
