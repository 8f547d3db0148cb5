"""What the ranks print, as files that grow.

Owns: the folder `logs/` of the server's home, one folder an attempt.
Leaves: who may read to the routes, masking to the worker.
Always: a byte is stored once at its offset: repeats are dropped and gaps refused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchyard.base import files
from torchyard.base.errors import Conflict


class LogGap(Conflict):
    """A chunk begins behind the end of what is here; `size_bytes` is where to go on."""

    code = "log_gap"

    def __init__(self, path: str, size_bytes: int) -> None:
        super().__init__(f"log `{path}` has {size_bytes} bytes; the chunk begins later")
        self.size_bytes = size_bytes


@dataclass(frozen=True)
class LogFile:
    """One rank's log, or one file of its `./logs` folder."""

    attempt: int
    path: str
    size_bytes: int


class Logs:
    """All logs of one server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def append(
        self, workspace: str, job: str, attempt: int, path: str, offset: int, content: bytes
    ) -> int:
        """Store `content` at `offset` and return the log's new size in bytes.

        Raises:
            LogGap: bytes before `offset` are missing.
        """
        target = files.inside(self._attempt(workspace, job, attempt), path)
        with self._lock:
            size = target.stat().st_size if target.exists() else 0
            if offset > size:
                raise LogGap(path, size)
            fresh = content[size - offset :]
            if not fresh and size:
                return size
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "ab") as file:
                file.write(fresh)
            return size + len(fresh)

    def list(self, workspace: str, job: str) -> Iterator[LogFile]:
        """Every log of every attempt, by attempt, then by path."""
        try:
            numbers = sorted(int(name) for name in os.listdir(self._job(workspace, job)))
        except FileNotFoundError:
            return
        for number in numbers:
            for path, size_bytes in files.walk(self._attempt(workspace, job, number)):
                yield LogFile(number, path, size_bytes)

    def file(self, workspace: str, job: str, attempt: int, path: str) -> Path:
        return files.inside(self._attempt(workspace, job, attempt), path)

    def _job(self, workspace: str, job: str) -> Path:
        return self._folder / files.safe_relative(f"{workspace}/{job}")

    def _attempt(self, workspace: str, job: str, attempt: int) -> Path:
        return self._job(workspace, job) / str(attempt)
