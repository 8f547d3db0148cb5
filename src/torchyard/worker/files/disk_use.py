"""How much a node's ranks have written to its folder.

Owns: what counts, measuring it bit by bit.
Leaves: what follows from it to diagnosis/limit_watch.py.
Always: a call takes a bounded time, however many files there are; links are not followed. What was
removed while a process still has it open is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# Placed by the worker, and read-only or shared.
_NOT_COUNTED = ("inputs", "inputs-fetched", "env", "hooks", "spool", "peer-copies")
_ENTRIES_PER_STEP = 5_000
_BLOCK_BYTES, _PAGE_BYTES = 512, 4096


class DiskUse:
    """Measures a folder again and again; `size_bytes` is what the last whole pass has found, or
    the current one if it has found more.
    """

    def __init__(self, folder: Path, entries_per_step: int = _ENTRIES_PER_STEP) -> None:
        self._folder = folder
        self._entries_per_step = entries_per_step
        self._pass = self._sizes()
        self._found_bytes = 0
        self.size_bytes = 0
        self.passes = 0

    def measure(self) -> int:
        """Look at the next entries; returns `size_bytes`."""
        for _ in range(self._entries_per_step):
            size_bytes = next(self._pass, None)
            if size_bytes is None:
                self.size_bytes = self._found_bytes
                self._pass, self._found_bytes = self._sizes(), 0
                self.passes += 1
                return self.size_bytes
            self._found_bytes += size_bytes
        self.size_bytes = max(self.size_bytes, self._found_bytes)
        return self.size_bytes

    def _sizes(self) -> Iterator[int]:
        """The bytes of each entry below the folder; files with several names count once."""
        linked: set[tuple[int, int]] = set()
        waiting = [str(self._folder)]
        while waiting:
            folder = waiting.pop()
            try:
                entries = list(os.scandir(folder))
            except OSError:
                continue  # removed meanwhile, or closed to this user
            for entry in entries:
                if folder == str(self._folder) and entry.name in _NOT_COUNTED:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                except OSError:
                    continue
                key = (status.st_dev, status.st_ino)
                if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                    if key in linked:
                        continue
                    linked.add(key)
                # The smaller one: of a file with holes, and of one with space reserved behind it.
                whole_pages = -(-status.st_size // _PAGE_BYTES) * _PAGE_BYTES
                yield min(status.st_blocks * _BLOCK_BYTES, whole_pages)
