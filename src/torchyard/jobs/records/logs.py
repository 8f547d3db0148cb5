"""What the ranks print, as files that grow.

Owns: the folder `logs/` of the server's home, one folder an attempt.
Leaves: who may read to the routes, masking to the worker, the order of pieces to log_order.py.
Always: a byte is stored once at its offset: repeats are dropped and gaps refused; two servers
that write the same chunk at once, or one of them late, leave the same bytes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchyard.base import disk, files
from torchyard.base.clock import Clock, SystemClock
from torchyard.base.errors import Conflict
from torchyard.jobs.records import log_order
from torchyard.jobs.records.log_order import LogOrder, Piece

_COUNTED_JOBS = 10_000


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
    """All logs of one home.

    Args:
        shared: other servers write there, too.
        clock: of the jobs' events, among which the pieces of logs are put.
    """

    def __init__(self, folder: Path, shared: bool = False, clock: Clock | None = None) -> None:
        self._folder = folder
        self._shared = shared
        self._clock = clock or SystemClock()
        self._order = LogOrder()
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        # Bytes of all logs of a job, as far as they have been counted.
        self._totals: dict[tuple[str, str], int] = {}

    def append(
        self, workspace: str, job: str, attempt: int, path: str, offset: int, content: bytes
    ) -> int:
        """Store `content` at `offset` and return the log's new size in bytes.

        Raises:
            LogGap: bytes before `offset` are missing.
            DiskFull: there is no room for them.
        """
        target = files.inside(self._attempt(workspace, job, attempt), path)
        with self._lock:
            size = target.stat().st_size if target.exists() else 0
            if offset > size:
                raise LogGap(path, size)
            fresh = content[size - offset :]
            if not fresh and size:
                return size
            # What of it a full disk took stays: the sender goes on from there.
            with disk.writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                _write_at(target, size, fresh)
            end = size + len(fresh)
            if fresh:
                piece = Piece(self._clock.now(), attempt, path, end)
                self._order.add(self._job(workspace, job), piece)
            return end

    def append_within(
        self,
        workspace: str,
        job: str,
        attempt: int,
        path: str,
        offset: int,
        content: bytes,
        most_bytes: int,
        last_line: bytes,
    ) -> int:
        """As `append`, while all logs of the job together have less than `most_bytes`.

        A log of which something was dropped ends with `last_line` and takes no more; then, -1.
        """
        target = files.inside(self._attempt(workspace, job, attempt), path)
        with self._counting:
            left = most_bytes - self._total(workspace, job)
            size = target.stat().st_size if target.exists() else 0
            if left <= 0 and _ends_with(target, last_line):
                os.utime(target)  # that it is still printed to is how a hang is told from it
                return -1
            fresh = content[max(0, size - offset) :]
            if len(fresh) <= left or not fresh:
                after = self.append(workspace, job, attempt, path, offset, content)
                self._totals[workspace, job] += max(0, after - size)
                return after
            accepted = content[: len(content) - len(fresh) + max(0, left)]
            after = self.append(workspace, job, attempt, path, offset, accepted)
            newline = b"" if not after or _ends_with(target, b"\n") else b"\n"
            after = self.append(workspace, job, attempt, path, after, newline + last_line)
            self._totals[workspace, job] += after - size
            return -1

    def _total(self, workspace: str, job: str) -> int:
        key = workspace, job
        # What others have written since it was counted is not in it.
        if self._shared or key not in self._totals or not self._job(workspace, job).exists():
            if len(self._totals) > _COUNTED_JOBS:
                self._totals.clear()
            self._totals[key] = sum(log.size_bytes for log in self.list(workspace, job))
        return self._totals[key]

    def list(self, workspace: str, job: str) -> Iterator[LogFile]:
        """Every log of every attempt, by attempt, then by path."""
        try:
            names = os.listdir(self._job(workspace, job))
        except FileNotFoundError:
            return
        for number in sorted(int(name) for name in names if name != log_order.NAME):
            for path, size_bytes in files.walk(self._attempt(workspace, job, number)):
                yield LogFile(number, path, size_bytes)

    def pieces(self, workspace: str, job: str) -> Sequence[Piece]:
        """In which order the bytes of all logs came, as far as it is known."""
        return log_order.pieces(self._job(workspace, job))

    def file(self, workspace: str, job: str, attempt: int, path: str) -> Path:
        return files.inside(self._attempt(workspace, job, attempt), path)

    def folder(self, workspace: str, job: str) -> Path:
        """All logs of a job; it may not be there."""
        return self._job(workspace, job)

    def _job(self, workspace: str, job: str) -> Path:
        return self._folder / files.safe_relative(f"{workspace}/{job}")

    def _attempt(self, workspace: str, job: str, attempt: int) -> Path:
        return self._job(workspace, job) / str(attempt)


def _write_at(file: Path, offset: int, content: bytes) -> None:
    # Not at the end, which another server may have moved meanwhile.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        left = memoryview(content)
        while left:
            written = os.pwrite(descriptor, left, offset)
            left, offset = left[written:], offset + written
    finally:
        os.close(descriptor)


def _ends_with(file: Path, line: bytes) -> bool:
    try:
        with open(file, "rb") as opened:
            opened.seek(max(0, os.fstat(opened.fileno()).st_size - len(line)))
            return opened.read() == line
    except FileNotFoundError:
        return False
