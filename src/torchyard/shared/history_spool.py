"""Run history on its way to the server, kept on the node's disk.

Owns: the spool's files, the numbers of its records, how far they are delivered.
Leaves: what a record is and how it travels to worker/relay/relay.py.
Always: a record whose `append` has returned survives the death of the worker; records are
numbered from 0 in order of arrival, over restarts too. A power cut may take what the system had
not yet written to the disk, some seconds: nothing here waits for the disk.

Files, in one folder: `history-<number of the first record>.ndjson`, one JSON object a line,
begun again when one is large; and `history.cursor`, the number of the next record to deliver. A
file goes when all it holds is delivered and a later one is begun, so that a server whose database
was put back to a backup can be given the newest records again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

_FILE_BYTES = 16 * 1024 * 1024
_PREFIX, _ENDING = "history-", ".ndjson"


def files_in(folder: Path) -> list[str]:
    """The names of a spool's files, in order; none of a folder that is not there."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.startswith(_PREFIX) and name.endswith(_ENDING))


class HistorySpool:
    """One node's spool. `append` may be called by many threads, `read` and `delivered` by one."""

    def __init__(self, folder: Path, file_bytes: int = _FILE_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._file_bytes = file_bytes
        self._changed = threading.Condition()
        self._cursor = _number_in(folder / "history.cursor")
        self._firsts = [int(name[len(_PREFIX) : -len(_ENDING)]) for name in files_in(folder)]
        self._end = self._cursor
        if self._firsts:
            self._end = self._firsts[-1] + _mend(self._path(self._firsts[-1]))
        if not self._firsts or self._end < self._cursor:
            # What the server has can't be numbered again, so lost lines leave a gap.
            for first in self._firsts:
                self._path(first).unlink()
            self._firsts, self._end = [self._cursor], self._cursor
        self._file = open(self._path(self._firsts[-1]), "ab", buffering=0)
        self._size = self._file.tell()
        # The place of the cursor in the first file, None while it must be looked for; and how
        # long the lines are that were read from there.
        self._position: int | None = None
        self._lengths: list[int] = []

    @property
    def end(self) -> int:
        """The number that the next record will get."""
        with self._changed:
            return self._end

    @property
    def first(self) -> int:
        """The number of the oldest record that is still here, delivered or not."""
        with self._changed:
            return self._firsts[0]

    @property
    def left(self) -> int:
        """How many records are not delivered."""
        with self._changed:
            return self._end - self._cursor

    def append(self, lines: Sequence[bytes]) -> int:
        """Keep records, each as JSON without a line end; returns the number after the last.

        Raises:
            OSError: the disk is full or broken, or the spool closed; nothing is kept.
        """
        content = b"".join(line + b"\n" for line in lines)
        with self._changed:
            if self._file.closed:
                raise OSError("the spool is closed")
            if self._size >= self._file_bytes:
                self._begin_file()
            self._write(content)
            self._end += len(lines)
            self._changed.notify_all()
            return self._end

    def read(self, max_records: int, max_bytes: int) -> tuple[int, list[bytes]]:
        """The number of the first record not delivered, and records from there on."""
        with self._changed:
            self._drop_delivered_files()
            first, cursor = self._firsts[0], self._cursor
            last = self._end if len(self._firsts) == 1 else self._firsts[1]
            position = self._position
        lines: list[bytes] = []
        size = 0
        with open(self._path(first), "rb") as file:
            if position is None:
                for _ in range(cursor - first):
                    file.readline()
                position = file.tell()
            file.seek(position)
            while len(lines) < min(max_records, last - cursor) and size < max_bytes:
                line = file.readline()
                lines.append(line[:-1])
                size += len(line)
        with self._changed:
            self._position, self._lengths = position, [len(line) + 1 for line in lines]
        return cursor, lines

    def delivered(self, following: int) -> None:
        """All records before `following` are the server's now."""
        with self._changed:
            following = min(following, self._end)
            count = following - self._cursor
            if count <= 0:
                return
            self._move_cursor(following)
            if self._position is not None and count <= len(self._lengths):
                self._position += sum(self._lengths[:count])
            else:
                self._position = None
            self._lengths = []
            self._changed.notify_all()

    def go_back(self, following: int) -> None:
        """The server lacks what it had, from this number on: deliver again what is still here."""
        with self._changed:
            following = max(following, self._firsts[0])
            if following < self._cursor:
                self._move_cursor(following)
                self._position = None
                self._lengths = []

    def wait_for_records(self, timeout_s: float, give_up: Callable[[], bool]) -> bool:
        """Until there is something to deliver, or `give_up` says so after a `wake`."""
        with self._changed:
            self._changed.wait_for(lambda: self._end > self._cursor or give_up(), timeout_s)
            return self._end > self._cursor

    def wait_delivered(self, upto: int, timeout_s: float, give_up: Callable[[], bool]) -> bool:
        """Until all records before `upto` are delivered, or `give_up` says so after a `wake`."""
        with self._changed:
            self._changed.wait_for(lambda: self._cursor >= upto or give_up(), timeout_s)
            return self._cursor >= upto

    def wake(self) -> None:
        """Let those who wait look again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._file.close()

    def _move_cursor(self, following: int) -> None:
        temporary = self._folder / "history.cursor.part"
        temporary.write_text(str(following))
        os.replace(temporary, self._folder / "history.cursor")
        self._cursor = following

    def _path(self, first: int) -> Path:
        return self._folder / f"{_PREFIX}{first:012d}.ndjson"

    def _write(self, content: bytes) -> None:
        start = self._size
        view = memoryview(content)
        try:
            while view:
                written = self._file.write(view) or 0
                self._size += written
                view = view[written:]
        except OSError:
            # A full disk must not leave half a line that the next record would continue.
            os.ftruncate(self._file.fileno(), start)
            self._size = start
            raise

    def _begin_file(self) -> None:
        # Opened first: on a full disk that may fail, and then the old one goes on.
        begun = open(self._path(self._end), "ab", buffering=0)
        self._file.close()
        self._firsts.append(self._end)
        self._file = begun
        self._size = 0

    def _drop_delivered_files(self) -> None:
        while len(self._firsts) > 1 and self._firsts[1] <= self._cursor:
            self._path(self._firsts.pop(0)).unlink()
            self._position = None


def _number_in(path: Path) -> int:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _mend(path: Path) -> int:
    """Cut off a line that a death left half-written; returns how many whole ones there are."""
    count = 0
    valid_bytes = 0
    with open(path, "r+b") as file:
        for line in file:
            if line.endswith(b"\n"):
                count += 1
                valid_bytes += len(line)
        file.truncate(valid_bytes)
    return count
