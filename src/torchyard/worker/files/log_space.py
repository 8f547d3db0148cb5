"""Space that a node's logs and history keep when its disk is full.

Owns: disk space ahead of files that grow, and a little for the worker's own last files.
Leaves: what follows when it runs out to diagnosis/limit_watch.py.
Always: space is reserved behind the end of a file, so nobody who reads the file sees it, and
writers that append use it without knowing. File systems without `fallocate` reserve nothing.

Source: fallocate(2), FALLOC_FL_KEEP_SIZE.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

_KEEP_SIZE = 1
_AHEAD_BYTES = 4 << 20
_LEAST_AHEAD_BYTES = 64 << 10
# Of what is free: small disks are not taken up by what is reserved.
_SHARE = 16
_LAST_FILES_BYTES = 256 << 10
_FULL_BYTES = 64 << 10
_BLOCK_BYTES = 512
_RESERVE = "reserve"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class LogSpace:
    """The space of one node; `reserve` and `release` are called by one thread.

    Args:
        node: the node's folder, on the disk that the ranks write to.
    """

    def __init__(self, node: Path) -> None:
        self._node = node
        self._ahead_bytes = 0
        self._can_reserve = True

    def reserve(self, files: Iterable[Path]) -> dict[Path, int]:
        """Reserve space behind the end of files; returns what is left of it where there is no more.

        Files that do not exist are left out, and so are all where nothing can be reserved.
        """
        if not self._ahead_bytes:
            self._start(len(list(files)))
        short: dict[Path, int] = {}
        for file in files:
            if not self._can_reserve:
                return {}
            try:
                status = os.stat(file)
            except OSError:
                continue
            left_bytes = status.st_blocks * _BLOCK_BYTES - status.st_size
            if left_bytes >= self._ahead_bytes // 2:
                continue
            if not self._extend(file, status.st_size):
                short[file] = max(0, left_bytes)
        return short

    @property
    def ahead_bytes(self) -> int:
        """How much is reserved for each file while there is space."""
        return self._ahead_bytes

    def is_full(self) -> bool:
        """Whether the disk has no space left for what ranks write."""
        return self._free_bytes() < _FULL_BYTES

    def release(self) -> None:
        """Give back what was kept for the worker's own last files, which are next."""
        try:
            os.unlink(self._node / _RESERVE)
        except OSError:
            pass

    def _start(self, count: int) -> None:
        share = self._free_bytes() // _SHARE // max(1, count)
        self._ahead_bytes = min(_AHEAD_BYTES, max(_LEAST_AHEAD_BYTES, share))
        try:
            (self._node / _RESERVE).touch()
        except OSError:
            return
        self._extend(self._node / _RESERVE, 0, _LAST_FILES_BYTES)

    def _extend(self, file: Path, size: int, length: int = 0) -> bool:
        """Whether there was space, or nothing can be reserved at all."""
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return True
        try:
            number = _fallocate(descriptor, size, length or self._ahead_bytes)
        finally:
            os.close(descriptor)
        self._can_reserve = self._can_reserve and number in (0, errno.EINTR, *_NO_SPACE)
        return number not in _NO_SPACE

    def _free_bytes(self) -> int:
        try:
            disk = os.statvfs(self._node)
        except OSError:
            return _FULL_BYTES
        free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
        return free * disk.f_frsize


def _fallocate(descriptor: int, offset: int, length: int) -> int:
    """0, or the number of the error."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    try:
        call = libc.fallocate64 if hasattr(libc, "fallocate64") else libc.fallocate
    except AttributeError:
        return errno.EOPNOTSUPP
    done = call(descriptor, _KEEP_SIZE, ctypes.c_longlong(offset), ctypes.c_longlong(length))
    return 0 if done == 0 else ctypes.get_errno()
