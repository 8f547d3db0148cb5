"""The log file of a server that a command has started: bounded, and rotated while it is written.

Owns: `server.log` and its predecessors `server.log.1` to `server.log.5`.
Leaves: what is logged to everybody, opening the file at the start to client/embedded.py; a server
under systemd logs to the journal, which has bounds of its own.
Always: the one server that rotates holds a lock, and the others follow to the new file with their
next line; a server that is killed between two steps leaves files that the next one goes on with.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from torchyard.shared import locks

LIMIT_BYTES = 10_000_000
KEPT = 5
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_OUTPUTS = (1, 2)


class RotatingHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr, as long as that is `file`, and rotates it.

    What libraries and the interpreter write to stdout and stderr goes to the same file.
    """

    def __init__(self, file: Path, limit_bytes: int = LIMIT_BYTES, count: int = KEPT) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter(_FORMAT))
        self._file = file
        self._limit_bytes = limit_bytes
        self._backup_count = count

    def emit(self, record: logging.LogRecord) -> None:
        # A log that can't be rotated is written on.
        with suppress(OSError):
            self.follow()
        super().emit(record)

    def follow(self) -> None:
        """Rotate the file if it is too long; write to its successor if another server did."""
        current = _identity(self._file)
        if current == _identity_of_output() and os.fstat(2).st_size < self._limit_bytes:
            return
        with locks.hold(self._file.with_name(f".{self._file.name}.lock")):
            if _identity(self._file) == _identity_of_output():
                self._rename()
            self._reopen()

    def _rename(self) -> None:
        """The oldest first, so that none is lost if this ends in between."""
        names = [
            self._file.with_name(f"{self._file.name}.{n}") for n in range(self._backup_count, 0, -1)
        ]
        for older, newer in zip(names, [*names[1:], self._file], strict=True):
            with suppress(FileNotFoundError):
                os.replace(newer, older)

    def _reopen(self) -> None:
        opened = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for output in _OUTPUTS:
                os.dup2(opened, output)
        finally:
            os.close(opened)


def rotate(file: Path) -> None:
    """Rotate the log from now on, if this process writes its output there."""
    current = _identity(file)
    if current is None or current != _identity_of_output():
        return
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    handler = RotatingHandler(file)
    with suppress(OSError):
        handler.follow()
    root.addHandler(handler)


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def _identity_of_output() -> tuple[int, int] | None:
    try:
        status = os.fstat(2)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)
