"""Where request bodies are while they arrive and are worked on.

Owns: the bytes in flight of all connections, in memory and on disk; the folder `spool/` of the
home; that one long body is worked on at a time; the threads that write bodies.
Leaves: reading them from the connection to request_bodies.py.
Always: no spooled body outlives its request, nor the server's process: its file has no name. For
use in the server's event loop alone.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

import anyio

from torchyard.base.errors import ServerBusy
from torchyard.base.threads import Threads

IN_MEMORY_BYTES = 1 << 20
"""A longer body is large, and goes to disk."""
_MEMORY_BYTES = 16 << 20
_DISK_BYTES = 2 << 30
_WAIT_LIMIT_S = 30.0
_WRITE_BYTES = 16 << 10
_BLOCK_BYTES = 512 << 10
_THREADS = 6
_STALE_S = 3600.0
_HINT = "try again in a few seconds"


in_body_thread = Threads("body", _THREADS).run
"""Run in one of the few threads for bodies, so that they never take all there are."""


async def in_blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in fewer pieces, for what costs something for each of them."""
    pieces: list[bytes] = []
    size_bytes = 0
    async for chunk in chunks:
        pieces.append(chunk)
        size_bytes += len(chunk)
        if size_bytes >= _BLOCK_BYTES:
            yield b"".join(pieces)
            pieces, size_bytes = [], 0
    if pieces:
        yield b"".join(pieces)


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


class BodySpool:
    """Of one server process.

    Args:
        folder: for bodies on disk; made when it is first needed.
        disk_bytes: of all of them together.
    """

    def __init__(
        self,
        folder: Path,
        memory_bytes: int = _MEMORY_BYTES,
        disk_bytes: int = _DISK_BYTES,
        wait_limit_s: float = _WAIT_LIMIT_S,
    ) -> None:
        self._folder = folder
        self.memory = Budget(memory_bytes)
        self.disk = Budget(disk_bytes)
        self._wait_limit_s = wait_limit_s
        # Parsing holds Python's lock, so two at a time would take no less time, and more memory.
        self._working = asyncio.Semaphore(1)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """While a large body is worked on; others wait.

        Raises:
            ServerBusy: the others took too long.
        """
        try:
            # Not by `wait_for`, which loses what it got if its caller is canceled at that moment.
            with anyio.fail_after(self._wait_limit_s):
                await self._working.acquire()
        except TimeoutError:
            raise ServerBusy("the server works on too many large requests", _HINT) from None
        try:
            yield
        finally:
            self._working.release()

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

    @property
    def is_large(self) -> bool:
        return self.size_bytes > IN_MEMORY_BYTES

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

    def drop(self) -> None:
        """Give back what it took."""
        self._spool.memory.give(self._memory_bytes)
        self._spool.disk.give(self._disk_bytes)
        self._memory_bytes = self._disk_bytes = 0
        self._buffer = bytearray()
        if self._file is not None:
            self._file.close()
