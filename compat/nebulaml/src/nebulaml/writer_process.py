"""A rank's end of its writer: starting it, handing copies over, starting it again.

Owns: copies that the writer has not written yet, and waiting for it.
Leaves: what is written, and when, to the writer.
Always: a copy is kept until the writer says that it is not needed, so another one can go on.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from nebulaml.memory import Copy, Memory, NoMemory
from nebulaml.requests import (
    Begin,
    Configure,
    Finished,
    Flush,
    Flushed,
    Freed,
    Put,
    Release,
    Told,
)
from nebulaml.versions import Version
from torchyard.train.checkpoint import messages

_MAX_RESTARTS = 3
_PROGRAM = (
    "import sys; sys.path[:0] = sys.argv[2:]; "
    "from nebulaml.writer import main; main(int(sys.argv[1]))"
)
_LOG = logging.getLogger("nebulaml")


@dataclass
class _Kept:
    """What a writer that replaces another one has to be told of a version."""

    begin: Begin
    puts: dict[int, tuple[Put, Copy]] = field(default_factory=dict)
    is_released: bool = False
    has_failed: bool = False


class WriterProcess:
    """Starts with the first version. Its methods are called by one thread."""

    def __init__(self, configuration: Configure, limit_bytes: int | None) -> None:
        self._configuration = configuration
        self._changed = threading.Condition()
        self._memory = Memory(limit_bytes)
        self._kept: dict[Version, _Kept] = {}
        self._flushes: set[int] = set()
        self._number = 0
        self._restarts = 0
        self._connection: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def configure(self, configuration: Configure) -> None:
        with self._changed:
            self._configuration = configuration
            if self._connection is not None:
                self._send(configuration)

    def begin(self, message: Begin) -> None:
        with self._changed:
            if message.version in self._kept:
                self._kept[message.version].begin = message
            else:
                self._kept[message.version] = _Kept(message)
            if self._connection is None:
                self._start()
            else:
                self._send(message)

    def copy(self, name: str, value: Any) -> Copy | None:
        """Copy an object as soon as there is memory for it; None if there never is."""
        while True:
            try:
                with self._changed:
                    return self._memory.copy(name, value)
            except NoMemory as error:
                limit = self._memory.limit_bytes
                if (limit is not None and error.size_bytes > limit) or not self._has_copies():
                    return None
                self.flush()

    def put(self, message: Put, copy: Copy) -> None:
        with self._changed:
            stored = self._kept.get(message.version)
            if stored is None:  # it was given up, and said so
                self._memory.free(message.name, copy)
                return
            stored.puts[message.number] = (message, copy)
            self._send(message, copy.descriptor)

    def release(self, version: Version) -> None:
        with self._changed:
            if version in self._kept and not self._kept[version].is_released:
                self._kept[version].is_released = True
                self._send(Release(version))

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def flush(self) -> None:
        """Return when everything that was saved is in storage or has failed."""
        with self._changed:
            if self._connection is None:
                return
            number = self.next_number()
            self._flushes.add(number)
            self._send(Flush(number))
            self._changed.wait_for(lambda: number not in self._flushes)

    def close(self) -> None:
        """Write what is left and end the process."""
        self.flush()
        with self._changed:
            self._is_closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.shutdown(socket.SHUT_WR)
        if self._process is not None:
            self._process.wait()
        self._memory.close()

    def _has_copies(self) -> bool:
        with self._changed:
            return any(stored.puts for stored in self._kept.values())

    def _start(self) -> None:
        connection, other_end = socket.socketpair()
        with other_end:
            descriptor = other_end.fileno()
            # A session of its own: what ends the rank's process group does not end it.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(descriptor), *filter(None, sys.path)],
                pass_fds=[descriptor], stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            )  # fmt: skip
        self._connection = connection
        threading.Thread(
            target=self._listen, args=(connection, self._process), name="nebula-writer", daemon=True
        ).start()
        self._send(self._configuration)
        for version, stored in list(self._kept.items()):
            if stored.has_failed:
                for number in list(stored.puts):
                    self._free(number)
                del self._kept[version]
                continue
            self._send(stored.begin)
            for put, copy in stored.puts.values():
                self._send(put, copy.descriptor)
            if stored.is_released:
                self._send(Release(version))
        for number in sorted(self._flushes):
            self._send(Flush(number))

    def _send(self, message: Any, descriptor: int | None = None) -> None:
        if self._connection is None:
            return
        try:
            messages.send(self._connection, pickle.dumps(message), descriptor)
        except OSError:
            pass  # it has ended; the listener starts another one and sends this again

    def _listen(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        """In a thread, for one process of the writer."""
        with connection:
            while (received := messages.receive(connection)) is not None:
                self._take(received[0])
        code = process.wait()
        with self._changed:
            if self._is_closed or self._connection is not connection:
                return
            self._connection = None
            if not (self._kept or self._flushes):
                return
            self._restarts += 1
            if self._restarts > _MAX_RESTARTS:
                self._give_up(code)
                return
            _LOG.warning("the process that writes checkpoints ended (%s); starting another", code)
            self._start()

    def _take(self, message: Any) -> None:
        if isinstance(message, Told):
            _LOG.warning("%s", message.text)
            return
        with self._changed:
            if isinstance(message, Freed):
                self._restarts = 0
                self._free(message.number, message.has_failed)
            elif isinstance(message, Finished):
                self._kept.pop(message.version, None)
            elif isinstance(message, Flushed):
                self._flushes.discard(message.number)
            self._changed.notify_all()

    def _free(self, number: int, has_failed: bool = False) -> None:
        for stored in self._kept.values():
            if number in stored.puts:
                stored.has_failed = stored.has_failed or has_failed
                put, copy = stored.puts.pop(number)
                self._memory.free(put.name, copy)

    def _give_up(self, code: int) -> None:
        _LOG.warning(
            "the process that writes checkpoints ended %s times (last: %s); what it held is lost",
            self._restarts, code,
        )  # fmt: skip
        self._restarts = 0
        for stored in self._kept.values():
            for number in list(stored.puts):
                self._free(number)
        self._kept.clear()
        self._flushes.clear()
        self._changed.notify_all()
