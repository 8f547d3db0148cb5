"""The files of collected data: which one a line belongs to, how much there may be.

Owns: the files' names, appending, deleting the oldest ones.
Leaves: what a line says, and which requests are kept, to collecting.py.
Always: a line is whole or is not there for readers: what a killed router left half-written stays a
line of its own; the files of a deployment stay within their limit, and the disk keeps some space.

In a collection's folder: `YYYY/MM/DD/HH.jsonl` in UTC, or as the rolling rate says.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

FORMS: Mapping[str, str] = {
    "minute": "%Y/%m/%d/%H/%M.jsonl",
    "hour": "%Y/%m/%d/%H.jsonl",
    "day": "%Y/%m/%d.jsonl",
    "month": "%Y/%m.jsonl",
    "year": "%Y.jsonl",
}
LEAST_FREE_BYTES = 256 << 20
"""Of the disk; nothing is collected while less is free."""
_MEASURE_EVERY_S = 600.0
_KEPT_SHARE = 0.9
_SUFFIX = ".jsonl"


@dataclass(frozen=True)
class _File:
    """`period` is its path in its collection's folder: sorts by time."""

    path: str
    period: str
    size_bytes: int


class CollectedFiles:
    """The files of one deployment, used by one thread.

    Args:
        now_s: a clock that only rises, for measuring again.
    """

    def __init__(self, folder: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._now_s = now_s
        self._size_bytes = 0
        self._measured_at = -_MEASURE_EVERY_S

    def append(
        self, collection: str, at: datetime, line: bytes, rolling: str, max_bytes: int
    ) -> None:
        """
        Args:
            line: with its end of line.

        Raises:
            OSError: the disk can't take it, or the limit is reached within one file's time.
        """
        if self._now_s() - self._measured_at >= _MEASURE_EVERY_S:
            self._measure()
        period = at.strftime(FORMS[rolling])
        if self._size_bytes + len(line) > max_bytes:
            self._make_space(max_bytes, period, len(line))
        disk = os.statvfs(self._existing())
        if disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES + len(line):
            raise OSError(errno.ENOSPC, "too little space is left", str(self._folder))
        file = self._folder / collection / period
        try:
            written = _append(file, line)
        except FileNotFoundError:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            written = _append(file, line)
        self._size_bytes += written

    def _existing(self) -> Path:
        folder = self._folder
        while not folder.is_dir():
            folder = folder.parent
        return folder

    def _measure(self) -> list[_File]:
        files = _files_below(self._folder)
        self._size_bytes = sum(file.size_bytes for file in files)
        self._measured_at = self._now_s()
        return files

    def _make_space(self, max_bytes: int, period: str, more_bytes: int) -> None:
        """Delete the oldest files, not those of this time, until a tenth is free."""
        files = self._measure()
        for file in sorted(files, key=lambda each: each.period):
            if self._size_bytes + more_bytes <= max_bytes * _KEPT_SHARE or file.period >= period:
                break
            with suppress(FileNotFoundError):
                os.unlink(file.path)
            self._size_bytes -= file.size_bytes
            for folder in Path(file.path).parents:
                if folder.parent == self._folder or folder == self._folder:
                    break  # a collection's own folder stays: it is a data asset
                with suppress(OSError):
                    folder.rmdir()
        if self._size_bytes + more_bytes > max_bytes:
            raise OSError(errno.EDQUOT, "the limit of collected data is reached", str(self._folder))


def _files_below(folder: Path) -> list[_File]:
    files = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            period = os.path.relpath(path, folder).partition(os.sep)[2]
            if not name.endswith(_SUFFIX) or not period:
                continue
            with suppress(FileNotFoundError):
                files.append(_File(path, period, os.lstat(path).st_size))
    return files


def _append(file: Path, line: bytes) -> int:
    """A whole line, in one write; returns the bytes written."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    opened = os.open(file, flags, 0o600)
    try:
        size_bytes = os.fstat(opened).st_size
        if size_bytes and os.pread(opened, 1, size_bytes - 1) != b"\n":
            line = b"\n" + line  # a router was killed within its last line
        written = os.write(opened, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        return written
    finally:
        os.close(opened)
