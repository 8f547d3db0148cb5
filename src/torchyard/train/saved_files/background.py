"""A process's end of its file writer: copies in memory, and handing them over.

Owns: the buffers, what is being written, what could not be.
Leaves: writing to file_writer, starting it to writing_process, waiting for a file to drafts.
Always: what `save` returned from is written when this process is killed a moment later. A copy
stays in its buffer until the writer has reported on it, so another writer can go on.
"""

from __future__ import annotations

import array
import contextlib
import json
import logging
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.train import host_memory, writing_process
from torchyard.train.saved_files import drafts
from torchyard.train.saved_files.file_writer import MESSAGE_BYTES
from torchyard.train.writing_process import WritingProcess

# Set in the environment of ranks whose torch.save is intercepted; the writer needs no interception.
VARIABLE = "TORCHYARD_INTERCEPT"
# One is written while the next copy goes into the other.
_BUFFERS = 2
_RESERVE_BYTES = 64 << 20
_MODULE = "torchyard.train.saved_files.file_writer"
_LOG = logging.getLogger("torchyard.train")


class NoMemory(Exception):
    """Too little memory is free for the copy."""


@dataclass
class _Buffer:
    descriptor: int = -1
    size_bytes: int = 0
    is_busy: bool = False


@dataclass(frozen=True)
class _HandedOver:
    message: dict[str, Any]
    buffer: _Buffer
    draft: int


class MemoryFile:
    """A binary file in memory. Beyond the limit it only counts: torch.save can't be stopped."""

    def __init__(self, descriptor: int, limit_bytes: int) -> None:
        self._descriptor = descriptor
        self.limit_bytes = limit_bytes
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        length = len(view)
        offset = self.size_bytes
        self.size_bytes += length
        if self.size_bytes <= self.limit_bytes:
            while view:
                written = os.pwrite(self._descriptor, view, offset)
                view, offset = view[written:], offset + written
        return length

    def flush(self) -> None:
        """Nothing is buffered; torch.save calls it."""


class BackgroundFiles:
    """Starts its process with the first save; any thread may call it.

    Args:
        record: a table of the saves, to which the writer adds lines.
        limit_bytes: the most memory for one copy; without it, what the machine has.
    """

    def __init__(self, record: Path | None = None, limit_bytes: int | None = None) -> None:
        self._record = str(record or "")
        self._limit_bytes = limit_bytes
        self._forget_all()

    def _forget_all(self) -> None:
        self._changed = threading.Condition()
        # What could not be written, by its path, until it is saved again.
        self.failed: dict[str, OSError] = {}
        self._buffers = [_Buffer() for _ in range(_BUFFERS)]
        self._pending: dict[int, _HandedOver] = {}
        self._writer = WritingProcess(self, self._changed, "files", socket.SOCK_SEQPACKET)
        self._number = 0

    def save(self, write: Callable[[MemoryFile], None], draft: Path, target: str) -> None:
        """Return when what `write` writes is in memory, and will be the file at `target`.

        Raises:
            NoMemory: nothing was saved.
            OSError: there can be no draft.
        """
        started_at, started_s = time.time(), time.monotonic()
        buffer = self._take_buffer()
        descriptor = -1
        try:
            size_bytes = self._copy(write, buffer)
            descriptor = drafts.begin(draft)
            with self._changed:
                self._number += 1
                message = {
                    "number": self._number, "path": target, "draft": str(draft),
                    "size_bytes": size_bytes,
                    "rank": os.environ.get("RANK") or os.environ.get("TORCHYARD_RANK") or "0",
                    "record": self._record, "saved_at": started_at,
                    "blocked_s": time.monotonic() - started_s,
                }  # fmt: skip
                handed = _HandedOver(message, buffer, descriptor)
                if self._writer.connection is None:
                    self._writer.start()
                self.failed.pop(target, None)
                self._pending[self._number] = handed
                self._send(handed)
        except BaseException:
            if descriptor >= 0:
                self._pending = {
                    number: handed
                    for number, handed in self._pending.items()
                    if handed.draft != descriptor
                }
                # A writer that got it already finds no draft, and does nothing.
                with contextlib.suppress(OSError):
                    os.unlink(draft)
                drafts.end(descriptor)
            self._free(buffer)
            raise

    def is_pending(self) -> bool:
        """Whether something is still being written."""
        return bool(self._pending)

    def wait_for(self, target: str) -> None:
        """Return when the file at `target` is written, or has failed."""
        with self._changed:
            self._changed.wait_for(
                lambda: all(handed.message["path"] != target for handed in self._pending.values())
            )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return when nothing is left to write; False when the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending, timeout_s)

    def close(self) -> None:
        """Write what is left and end the process."""
        self.wait()
        with self._changed:
            connection, process = self._writer.detach()
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if process is not None:
            process.wait()
        for buffer in self._buffers:
            if buffer.descriptor >= 0 and not buffer.is_busy:
                os.close(buffer.descriptor)
                buffer.descriptor, buffer.size_bytes = -1, 0

    def forget(self) -> None:
        """In a child process that was forked: the parent's saves are the parent's."""
        for handed in self._pending.values():
            os.close(handed.draft)
        for buffer in self._buffers:
            if buffer.descriptor >= 0:
                os.close(buffer.descriptor)
        if self._writer.connection is not None:
            self._writer.connection.close()
        self._forget_all()

    def _take_buffer(self) -> _Buffer:
        def free() -> _Buffer | None:
            return next((buffer for buffer in self._buffers if not buffer.is_busy), None)

        with self._changed:
            self._changed.wait_for(free)
            buffer = free()
            assert buffer is not None
            buffer.is_busy = True
            return buffer

    def _free(self, buffer: _Buffer) -> None:
        with self._changed:
            buffer.is_busy = False
            self._changed.notify_all()

    def _copy(self, write: Callable[[MemoryFile], None], buffer: _Buffer) -> int:
        if buffer.descriptor < 0:
            buffer.descriptor = os.memfd_create("torch-save")
        limit_bytes = self._limit_bytes
        if limit_bytes is None:
            free_bytes = host_memory.available_bytes(Path("/"))
            limit_bytes = 1 << 62
            if free_bytes is not None:
                limit_bytes = buffer.size_bytes + max(0, free_bytes - _RESERVE_BYTES)
        stream = MemoryFile(buffer.descriptor, limit_bytes)
        try:
            write(stream)
        finally:
            buffer.size_bytes = max(buffer.size_bytes, min(stream.size_bytes, limit_bytes))
        if stream.size_bytes > limit_bytes:
            os.close(buffer.descriptor)
            buffer.descriptor, buffer.size_bytes = -1, 0
            raise NoMemory(f"the copy needs {stream.size_bytes} bytes and {limit_bytes} are free")
        return stream.size_bytes

    def launch(self, descriptor: int) -> subprocess.Popen[bytes]:
        variables = {name: value for name, value in os.environ.items() if name != VARIABLE}
        with drafts.unwatched():
            return writing_process.launch(_MODULE, descriptor, variables, stdout=subprocess.DEVNULL)

    def receive(self, connection: socket.socket) -> None:
        while content := connection.recv(MESSAGE_BYTES):
            self._take(json.loads(content))

    def is_waiting(self) -> bool:
        return bool(self._pending)

    def hand_over(self) -> None:
        for handed in list(self._pending.values()):
            self._send(handed)

    def give_up(self, reason: str) -> None:
        for handed in list(self._pending.values()):
            draft = Path(handed.message["draft"])
            is_written = not drafts.is_at(handed.draft, draft)
            if not is_written:
                draft.unlink()
            error = None if is_written else OSError(5, f"its process {reason}")
            self._finish(handed, error)

    def _send(self, handed: _HandedOver) -> None:
        """One packet: a signal handler that saves as well can't cut it in two."""
        assert self._writer.connection is not None
        rights = array.array("i", [handed.buffer.descriptor, handed.draft])
        with contextlib.suppress(BrokenPipeError, ConnectionError):  # the listener sends it again
            self._writer.connection.sendmsg(
                [json.dumps(handed.message).encode()],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
            )

    def _take(self, message: dict[str, Any]) -> None:
        if "told" in message:
            _LOG.warning("%s", message["told"])
            return
        with self._changed:
            handed = self._pending.get(message["number"])
            if handed is None:
                return
            self._writer.worked()
            error = None
            if message["code"]:
                error = OSError(message["code"], message["text"], handed.message["path"])
            self._finish(handed, error)

    def _finish(self, handed: _HandedOver, error: OSError | None) -> None:
        del self._pending[handed.message["number"]]
        if error is not None:
            self.failed[handed.message["path"]] = error
            _LOG.warning(
                "`%s` was not written: %s; the file that was there is as it was, "
                "and training goes on",
                handed.message["path"], error.strerror,
            )  # fmt: skip
        drafts.end(handed.draft)
        self._free(handed.buffer)
