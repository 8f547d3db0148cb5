"""A file that is counted and summed while it is written.

Leaves: what is written to shares.py and to Nebula's layer.
"""

from __future__ import annotations

import ctypes
import io
import zlib
from collections.abc import Callable
from typing import Any

# Linux's sync_file_range(2): begin to write a file's pages to the disk, and don't wait.
_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)
_WRITE = 2
_BLOCK_BYTES = 16 << 20


class ChecksumStream(io.RawIOBase):
    """Count and sum what is written to a file; the disk writes each block during the next one."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.size_bytes = 0
        self.crc32 = 0
        self._error: OSError | None = None

    def fill(self, write: Callable[[io.RawIOBase], object]) -> None:
        """Have it written by `write`, such as torch.save.

        Raises:
            OSError: such as a full disk; torch.save alone raises that its file is incomplete.
        """
        try:
            write(self)
        except RuntimeError:
            if self._error is not None:
                raise self._error from None
            raise

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _BLOCK_BYTES):
            block = view[start : start + _BLOCK_BYTES]
            self.crc32 = zlib.crc32(block, self.crc32)
            self._write_block(block)
        return len(view)

    def _write_block(self, block: memoryview) -> None:
        start = self.size_bytes
        self.size_bytes += len(block)
        try:
            while block:
                block = block[self._file.write(block) :]
        except OSError as error:
            self._error = error
            raise
        if _SYNC_FILE_RANGE is not None and self.size_bytes - start == _BLOCK_BYTES:
            # What goes wrong in the background, fsync reports.
            _SYNC_FILE_RANGE(
                self._file.fileno(), ctypes.c_int64(start), ctypes.c_int64(_BLOCK_BYTES), _WRITE
            )
