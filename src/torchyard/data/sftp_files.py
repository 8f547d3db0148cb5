"""Files over SFTP without waiting for each 32 KiB.

Owns: several requests on their way at once, in both directions; noticing that one of them failed.
Leaves: paths, names and connections to remote.py and connections.py.
Always: a write that the other side refused is told before the file counts as whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_WINDOW_BYTES = 4 << 20


def chunks(file: Any, start: int, end: int) -> Iterator[bytes]:
    """What an open paramiko file holds between two places, in bytes from its beginning."""
    for at in range(start, end, _WINDOW_BYTES):
        yield from file.readv([(at, min(_WINDOW_BYTES, end - at))])


class Pipelined:
    """An unbuffered paramiko file that is written; only `close` waits for what was sent.

    paramiko looks at the answers to pipelined writes when a write that isn't pipelined follows, and
    never at those to the last ones: so the last byte is kept back for the end.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._held = b""
        file.set_pipelined(True)

    def write(self, chunk: bytes) -> None:
        """
        Raises:
            OSError: the other side refused an earlier one, or is gone.
        """
        if chunk:
            self._file.write(self._held + chunk[:-1])
            self._held = chunk[-1:]

    def close(self) -> None:
        """
        Raises:
            OSError: the other side refused some of it, or is gone.
        """
        held, self._held = self._held, b""
        self._file.set_pipelined(False)
        self._file.write(held)
        self._file.close()

    def discard(self) -> None:
        """Close it without what was kept back."""
        self._held = b""
        self._file.close()
