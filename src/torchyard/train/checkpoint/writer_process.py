"""A rank's end of its writer: handing copies over, and what became of them.

Owns: buffers that are free or in use, and what became of each save.
Leaves: the copy to staging, writing to the writer, starting it to writing_process.
Always: a copy stays in its buffer until the writer has reported on it, so another can go on.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.train import writing_process
from torchyard.train.checkpoint import locks, messages
from torchyard.train.checkpoint.commits import SaveRequest
from torchyard.train.checkpoint.errors import CheckpointError
from torchyard.train.checkpoint.messages import Assigned, Cleaned, Failed, Notice, Save, Saved
from torchyard.train.checkpoint.staging import Buffer, Staged
from torchyard.train.writing_process import WritingProcess

# One is written while the next copy goes into the other.
_BUFFERS = 2
_MODULE = "torchyard.train.checkpoint.writer"
_LOG = logging.getLogger("torchyard.train")


@dataclass
class SaveState:
    """What became of a save; `share` is the positions of the plan that this rank had to write."""

    finished: threading.Event = field(default_factory=threading.Event)
    path: Path | None = None
    error: CheckpointError | None = None
    share: tuple[int, ...] | None = None

    def finish(self, path: Path | None, error: CheckpointError | None = None) -> None:
        self.path, self.error = path, error
        self.finished.set()


@dataclass
class _Handed:
    message: Save
    state: SaveState


class WriterProcess:
    """Starts with the first save. Its methods are called by one thread at a time."""

    def __init__(self, staging_bytes: int | None) -> None:
        self.buffers = [Buffer(staging_bytes) for _ in range(_BUFFERS)]
        self._changed = threading.Condition()
        self._handed: dict[int, _Handed] = {}
        self._busy: set[int] = set()
        self._number = 0
        self._writer = WritingProcess(self, self._changed, "checkpoints", socket.SOCK_STREAM)
        # For whose folder and rank the first process is started.
        self._request: SaveRequest | None = None
        # Descriptors that the present process has, by buffer.
        self._known: dict[int, int] = {}

    @property
    def pid(self) -> int | None:
        return self._writer.process.pid if self._writer.process else None

    def free_buffer(self) -> int:
        """The number of a buffer, as soon as one is free."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._busy) < _BUFFERS)
            return min(set(range(_BUFFERS)) - self._busy)

    def write(self, request: SaveRequest, buffer: int, staged: dict[int, Staged]) -> SaveState:
        """Hand over what was copied to a buffer."""
        state = SaveState()
        with self._changed:
            self._number += 1
            if self._writer.connection is None:
                self._request = request
                self._writer.start()
            message = Save(self._number, request, buffer, self.buffers[buffer].size_bytes, staged)
            self._handed[self._number] = _Handed(message, state)
            self._busy.add(buffer)
            self._send(message)
        return state

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return when nothing is left to write or to delete; False when the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._handed, timeout_s)

    def close(self) -> None:
        """Write what is left and end the process."""
        self.wait()
        with self._changed:
            connection, process = self._writer.detach()
        if connection is not None:
            connection.shutdown(socket.SHUT_WR)
        if process is not None:
            process.wait()
        for buffer in self.buffers:
            buffer.close()

    def launch(self, descriptor: int) -> subprocess.Popen[bytes]:
        request = next((each.message.request for each in self._handed.values()), self._request)
        assert request is not None
        lock = locks.take(request.folder, request.rank, request.timeout_s)
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        try:
            process = writing_process.launch(_MODULE, descriptor, variables, also=[lock])
        finally:
            os.close(lock)  # the writer has it now, and processes that this one forks don't
        self._known = {}
        return process

    def receive(self, connection: socket.socket) -> None:
        while (received := messages.receive(connection)) is not None:
            self._take(received[0])

    def is_waiting(self) -> bool:
        return bool(self._handed)

    def hand_over(self) -> None:
        for handed in list(self._handed.values()):
            self._send(handed.message)

    def give_up(self, reason: str) -> None:
        text = f"the process that writes checkpoints {reason}"
        for handed in list(self._handed.values()):
            self._fail(handed, CheckpointError(text, "see what it printed"))

    def _send(self, message: Save) -> None:
        assert self._writer.connection is not None
        descriptor = self.buffers[message.buffer].descriptor
        is_new = descriptor >= 0 and self._known.get(message.buffer) != id_of(descriptor)
        try:
            messages.send(
                self._writer.connection, pickle.dumps(message), descriptor if is_new else None
            )
        except OSError:
            return  # it has ended; the listener starts another one and sends this again
        if is_new:
            self._known[message.buffer] = id_of(descriptor)

    def _take(self, message: Any) -> None:
        if isinstance(message, Notice):
            _LOG.warning("%s", message.text)
            return
        with self._changed:
            handed = self._handed.get(message.number)
            if handed is None:
                return
            if isinstance(message, Assigned):
                handed.state.share = message.positions
            elif isinstance(message, Saved):
                handed.state.finish(message.path)
            elif isinstance(message, Cleaned):
                self._writer.worked()
                self._release(handed)
            elif isinstance(message, Failed):
                _LOG.warning("%s", message.message)
                self._fail(handed, CheckpointError(message.message, message.hint))

    def _fail(self, handed: _Handed, error: CheckpointError) -> None:
        if handed.state.path is None:
            handed.state.finish(None, error)
        self._release(handed)

    def _release(self, handed: _Handed) -> None:
        del self._handed[handed.message.number]
        self._busy.discard(handed.message.buffer)
        self._changed.notify_all()


def id_of(descriptor: int) -> int:
    """What tells one buffer's memory from the next with the same descriptor."""
    return os.fstat(descriptor).st_ino
