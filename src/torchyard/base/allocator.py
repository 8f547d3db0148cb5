"""The C library's allocator.

Owns: how soon memory of large objects goes back to the system.
Leaves: how much is taken to those who take it.
Always: where the C library is another one than glibc, nothing changes.

Source: mallopt(3), "dynamic mmap threshold"
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1 << 20


def free_large_blocks() -> None:
    """Give the memory of large objects back to the system when they are freed.

    By itself glibc stops to do so for objects as large as the largest that was freed so far (up to
    32 MiB), and keeps up to eight heaps per processor for threads. A server that has worked on
    some large request bodies would stay several times as large as they were.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_M_TRIM_THRESHOLD, 8 * _LARGE_BYTES)
    mallopt(_M_ARENA_MAX, 2)
