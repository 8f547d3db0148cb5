"""Pipelined reads and writes of files over SFTP.

Owns: sending several requests before the first is answered; noticing that one of them failed.
Leaves: paths, names and connections to remote.py and connections.py.
Always: a write that the server refused raises before the file counts as complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_WINDOW_BYTES = 4 << 20


def chunks(file: Any, start: int, end: int) -> Iterator[bytes]:
    """The bytes of an open paramiko file from `start` to `end`."""
    for at in range(start, end, _WINDOW_BYTES):
        yield from file.readv([(at, min(_WINDOW_BYTES, end - at))])


class Pipelined:
    """An unbuffered paramiko file open for writing; only `close` waits for the responses.

    paramiko reads the responses to pipelined writes at the next write that isn't pipelined, and
    never those to the last ones: so the last byte is held back until `close`.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._last_byte = b""
        file.set_pipelined(True)

    def write(self, chunk: bytes) -> None:
        """
        Raises:
            OSError: the server refused an earlier write, or the connection is lost.
        """
        if chunk:
            self._file.write(self._last_byte + chunk[:-1])
            self._last_byte = chunk[-1:]

    def close(self) -> None:
        """
        Raises:
            OSError: the server refused a write, or the connection is lost.
        """
        rest, self._last_byte = self._last_byte, b""
        self._file.set_pipelined(False)
        self._file.write(rest)
        self._file.close()

    def discard(self) -> None:
        """Close it without writing the byte that was held back."""
        self._last_byte = b""
        self._file.close()
