"""The process that holds a rank's copies and writes them to storage.

Owns: which versions stay in memory, which are written, and when.
Leaves: files and records to versions, the table of them to histories.
Always: when its rank ends, or is killed, it writes what it holds; a rank that was killed has
released nothing more, so what it had only begun stays half and is never loaded.

It ignores the signals that end jobs: its rank may save once more before it ends.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from nebulaml import histories, versions
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

# Between tries after an error of the disk; after the last one the version is given up.
_RETRY_DELAYS_S = (1.0, 4.0, None)
_READ_BYTES = 16 << 20


def main(descriptor: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as connection:
        writer = _Writer(connection)
        while True:
            if not select.select([connection], [], [], writer.next_write_s())[0]:
                writer.write_newest()
                continue
            received = messages.receive(connection)
            if received is None:
                break
            writer.take(*received)
        writer.write_all()


@dataclass
class _Held:
    """A version and its objects that are in memory, with their file descriptors."""

    version: Version
    is_due: bool
    saved: histories.Saved
    puts: list[tuple[Put, int]] = field(default_factory=list)
    is_released: bool = False
    has_failed: bool = False


class _Writer:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._configuration: Configure | None = None
        self._held: dict[tuple[str, str], _Held] = {}
        self._written_at = time.monotonic()

    def take(self, message: Any, descriptor: int | None) -> None:
        if isinstance(message, Configure):
            self._configuration = message
        elif isinstance(message, Begin):
            self._begin(message)
        elif isinstance(message, Put):
            assert descriptor is not None
            pending = self._held[_key(message.version)]
            pending.puts.append((message, descriptor))
            if pending.is_due:
                self._write(pending)
        elif isinstance(message, Release):
            pending = self._held[_key(message.version)]
            pending.is_released = True
            if pending.is_due:
                self._write(pending)
            else:
                self._drop_replaced()
        elif isinstance(message, Flush):
            self.write_all()
            self._send(Flushed(message.number))

    def next_write_s(self) -> float | None:
        """How long nothing has to be written; None without anything in memory."""
        if self._newest() is None or self._configuration is None:
            return None
        due_at = self._written_at + self._configuration.interval_s
        return max(0.0, due_at - time.monotonic())

    def write_newest(self) -> None:
        """Write the newest version that stayed in memory, as its interval is over."""
        newest = self._newest()
        if newest is not None:
            self._written_at = time.monotonic()
            newest.is_due = True
            self._write(newest)

    def write_all(self) -> None:
        for pending in list(self._held.values()):
            pending.is_due = True
            self._write(pending)

    def _begin(self, message: Begin) -> None:
        version = message.version
        pending = self._held.get(_key(version))
        if pending is None:
            assert self._configuration is not None
            saved = histories.Saved(
                version.tag, self._configuration.rank, version.folder, message.started_at
            )
            pending = self._held[_key(version)] = _Held(version, False, saved)
        if message.is_due:
            self._written_at = time.monotonic()
            pending.is_due = True
            self._write(pending)

    def _newest(self) -> _Held | None:
        waiting = [
            pending for pending in self._held.values() if pending.is_released and not pending.is_due
        ]
        return max(waiting, key=lambda pending: pending.version.name, default=None)

    def _drop_replaced(self) -> None:
        """Keep the newest versions in memory, as many as `num_of_version_in_retention` says."""
        assert self._configuration is not None
        waiting = [
            pending for pending in self._held.values() if pending.is_released and not pending.is_due
        ]
        waiting.sort(key=lambda pending: pending.version.name)
        for pending in waiting[: -self._configuration.retention]:
            for put, descriptor in pending.puts:
                os.close(descriptor)
                self._send(Freed(put.number))
            versions.forget(pending.version, self._configuration.rank)
            self._remove(pending)

    def _write(self, pending: _Held) -> None:
        while pending.puts:
            put, descriptor = pending.puts.pop(0)
            is_written = self._write_object(pending, put, descriptor)
            os.close(descriptor)
            self._send(Freed(put.number, has_failed=not is_written))
        if pending.is_released:
            self._finish(pending)

    def _write_object(self, pending: _Held, put: Put, descriptor: int) -> bool:
        def copy(file: Any) -> None:
            offset = 0
            while offset < put.size_bytes:
                block = os.pread(descriptor, min(_READ_BYTES, put.size_bytes - offset), offset)
                offset += file.write(block)

        for delay_s in _RETRY_DELAYS_S:
            try:
                versions.add_object(pending.version, put.name, copy)
            except OSError as error:
                text = f"`{put.name}` of checkpoint `{put.version.tag}` can't be written: {error}"
                if delay_s is None:
                    pending.has_failed = True
                    self._send(Told(f"{text}; this checkpoint is not kept"))
                    return False
                self._send(Told(f"{text}; trying again in {delay_s:g} s"))
                time.sleep(delay_s)
            else:
                pending.saved.files += 1
                pending.saved.size_bytes += put.size_bytes
                pending.saved.blocked_s += put.blocked_s
                pending.saved.ended_at = time.time()
                return True
        raise AssertionError("the last try returns")

    def _finish(self, pending: _Held) -> None:
        """All of this rank's objects are durable."""
        assert self._configuration is not None
        version = pending.version
        try:
            if not pending.has_failed:
                versions.release(version, self._configuration.rank)
                if versions.read(version) is not None:
                    versions.remove(version.root, version.tag, older_than=version.name)
            if pending.saved.files:
                histories.append(self._configuration.history, pending.saved)
        except OSError as error:
            self._send(Told(f"checkpoint `{version.tag}`: {error}"))
        self._remove(pending)

    def _remove(self, pending: _Held) -> None:
        del self._held[_key(pending.version)]
        self._send(Finished(pending.version))

    def _send(self, message: Freed | Finished | Flushed | Told) -> None:
        try:
            messages.send(self._connection, pickle.dumps(message))
        except OSError:
            pass  # the rank has ended; what it handed over is written all the same


def _key(version: Version) -> tuple[str, str]:
    return str(version.folder), version.name
