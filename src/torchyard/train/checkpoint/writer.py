"""The process that writes a rank's copies.

Owns: its loop. It inherits the rank's lock.
Leaves: the save itself to commits.
Always: it ends when its rank has ended and every copy that was complete is written.

It is started by `writer_process` as `python -c`, with the file descriptor of a socket, and ignores
the signals that end jobs: its rank may save once more before it ends.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket

import torch

from torchyard.train.checkpoint import folders, messages
from torchyard.train.checkpoint.commits import Commit, SaveRequest
from torchyard.train.checkpoint.errors import CheckpointError
from torchyard.train.checkpoint.messages import Assigned, Cleaned, Failed, Notice, Save, Saved
from torchyard.train.checkpoint.shares import ItemData
from torchyard.train.checkpoint.staging import mapped


def main(descriptor: int) -> None:
    torch.set_num_threads(1)
    torch.serialization.set_crc32_options(False)  # the manifest has checksums of the files
    with socket.socket(fileno=descriptor) as connection:
        writer = _Writer(connection)
        while (received := messages.receive(connection)) is not None:
            writer.save(*received)


class _Writer:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._views: dict[int, mmap.mmap] = {}

    def save(self, message: Save, descriptor: int | None) -> None:
        """Write one copy and report; errors of a save don't end the process."""
        if descriptor is not None:
            self._views[message.buffer] = mapped(descriptor, message.buffer_bytes)
            os.close(descriptor)
        request = message.request
        try:
            info = self._commit(message)
        except CheckpointError as error:
            self._send(Failed(message.number, error.message, error.hint))
        except Exception as error:  # such as a state that can't be unpickled here
            text = f"checkpoint of step {request.step} failed: {type(error).__name__}: {error}"
            self._send(Failed(message.number, text, ""))
        else:
            self._send(Saved(message.number, info.path))
            if request.rank == request.leader:
                self._clean(request)
            self._send(Cleaned(message.number))

    def _commit(self, message: Save) -> folders.CheckpointInfo:
        view = self._views.get(message.buffer)

        def read(position: int) -> ItemData:
            staged = message.staged[position]
            if isinstance(staged, bytes):
                return staged
            count = 1
            for dimension in staged.shape:
                count *= dimension
            if view is None or count == 0:
                return torch.empty(staged.shape, dtype=staged.dtype)
            flat = torch.frombuffer(view, dtype=staged.dtype, count=count, offset=staged.offset)
            return flat.view(staged.shape)

        return Commit(
            message.request, read,
            log=lambda text: self._send(Notice(text)),
            on_share=lambda positions: self._send(Assigned(message.number, positions)),
        ).run()  # fmt: skip

    def _clean(self, request: SaveRequest) -> None:
        """Delete the checkpoints that no rule keeps, and what killed writers left.

        A failure is a notice and no failed save; the next save tries again.
        """
        try:
            checkpoints = folders.checkpoints(request.folder)
            metrics = {step: info.metric for step, info in checkpoints.items()}
            for step in request.retention.expired(metrics):
                folders.delete(request.folder, step)
            folders.remove_stale(request.folder, request.session, request.step)
        except Exception as error:
            self._send(Notice(f"old checkpoints in {request.folder} can't be deleted: {error}"))

    def _send(self, message: Assigned | Cleaned | Notice | Saved | Failed) -> None:
        try:
            messages.send(self._connection, pickle.dumps(message))
        except OSError:
            pass  # the rank has ended; what it handed over is written all the same
