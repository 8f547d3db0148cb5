"""Write a file in several threads, and compute its size and CRC-32 meanwhile.

Owns: the threads, the order of a file's parts.
Leaves: the contents to shares.py, which library computes the CRC-32 to checksums.py.
Always: `write` returns once the kernel has the bytes: the caller may change their memory then.
"""

from __future__ import annotations

import ctypes
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from torchyard.train.checkpoint import checksums

# Linux's sync_file_range(2): begin to write a file's pages to the disk, and don't wait.
_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)
_WRITE = 2
# One thread's part of a file, which begins at a multiple of it.
PART_BYTES = 16 << 20
# The kernel lets one thread at a time write to a file; the others compute checksums meanwhile.
_THREADS = min(4, os.cpu_count() or 1)


class ChecksumStream(io.RawIOBase):
    """A stream to an empty file; the disk writes each part while the next one is computed.

    `close` ends the threads and leaves the file open.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="checkpoint-file")
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

    def close(self) -> None:
        self._pool.shutdown()
        super().close()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        parts: list[tuple[memoryview, int]] = []
        start = 0
        while start < len(view):
            offset = self.size_bytes + start
            part = view[start : start + PART_BYTES - offset % PART_BYTES]
            parts.append((part, offset))
            start += len(part)
        try:
            if len(parts) == 1:
                self.crc32 = self._write_part(*parts[0], self.crc32)
            else:
                self._write_parts(parts)
        except OSError as error:
            self._error = error
            raise
        self.size_bytes += len(view)
        return len(view)

    def _write_parts(self, parts: list[tuple[memoryview, int]]) -> None:
        futures = [self._pool.submit(self._write_part, *part, 0) for part in parts]
        wait(futures)
        for (part, _), future in zip(parts, futures, strict=True):
            self.crc32 = checksums.combine(self.crc32, future.result(), len(part))

    def _write_part(self, part: memoryview, offset: int, crc32: int) -> int:
        descriptor = self._file.fileno()
        for start in range(0, len(part), checksums.BLOCK_BYTES):
            block = part[start : start + checksums.BLOCK_BYTES]
            crc32 = checksums.crc32(block, crc32)
            while block:
                count = os.pwrite(descriptor, block, offset + start)
                block, start = block[count:], start + count
        if _SYNC_FILE_RANGE is not None and (offset + len(part)) % PART_BYTES == 0:
            # What goes wrong in the background, fsync reports.
            _SYNC_FILE_RANGE(descriptor, ctypes.c_int64(offset), ctypes.c_int64(len(part)), _WRITE)
        return crc32
