"""CRC-32 of files, computed by the fastest library of the environment.

Owns: the choice of the library, combining the checksums of parts, reading a file in parts.
Leaves: comparing a file with its manifest to folders.
Always: every library gives the same CRC-32, so a checkpoint can be verified in any environment.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

# zlib's polynomial, its bits reflected.
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
# A block stays in a processor's second-level cache while it is read and summed.
BLOCK_BYTES = 1 << 20
# One thread's part of a file.
_PART_BYTES = 64 << 20
_READERS = 4
_FASTER_THAN_ZLIB = ("isal.isal_zlib", "zlib_ng.zlib_ng")


def fastest_crc32() -> Callable[[Any, int], int]:
    """Return the function of isal or zlib-ng, which take a tenth of zlib's time, or zlib's."""
    for name in _FASTER_THAN_ZLIB:
        try:
            function: Callable[[Any, int], int] = importlib.import_module(name).crc32
            if function(b"123456789", 0) == 0xCBF43926:
                return function
        except Exception:  # such as a library that is built for another processor
            continue
    return zlib.crc32


crc32 = fastest_crc32()


def combine(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC-32 of two consecutive parts.

    Args:
        first: the CRC-32 of the first part.
        second: the CRC-32 of the second part, computed by itself.
        second_bytes: the size of the second part.

    Source: crc32_combine of zlib's crc32.c, by Mark Adler.
    """
    return _multiply(_shift(second_bytes), first) ^ second


@lru_cache(maxsize=256)
def _shift(size_bytes: int) -> int:
    """Return x to the power of `8 * size_bytes`, modulo the polynomial."""
    power, square = _ONE, _ONE >> 8
    while size_bytes:
        if size_bytes & 1:
            power = _multiply(square, power)
        square = _multiply(square, square)
        size_bytes >>= 1
    return power


def _multiply(left: int, right: int) -> int:
    """Multiply two polynomials, modulo zlib's."""
    product = 0
    while left:
        if left & _ONE:
            product ^= right
        left = left << 1 & 0xFFFFFFFF
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
    return product


def file_crc32(path: Path) -> tuple[int, int]:
    """Return a file's size in bytes and its CRC-32; several threads read a large file.

    Raises:
        OSError: the file can't be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        starts = range(0, os.fstat(descriptor).st_size, _PART_BYTES) or range(1)
        if len(starts) == 1:
            parts = [_part_crc32(descriptor, 0)]
        else:
            with ThreadPoolExecutor(min(_READERS, len(starts))) as pool:
                parts = list(pool.map(_part_crc32, [descriptor] * len(starts), starts))
    finally:
        os.close(descriptor)
    total = size_bytes = 0
    for part, part_bytes in parts:
        total = combine(total, part, part_bytes)
        size_bytes += part_bytes
    return size_bytes, total


def _part_crc32(descriptor: int, start: int) -> tuple[int, int]:
    buffer = memoryview(bytearray(BLOCK_BYTES))
    total = size_bytes = 0
    while size_bytes < _PART_BYTES:
        # After a short read the last block of a part would reach into the next part.
        block = buffer[: min(BLOCK_BYTES, _PART_BYTES - size_bytes)]
        count = os.preadv(descriptor, [block], start + size_bytes)
        if not count:
            break
        total = crc32(block[:count], total)
        size_bytes += count
    return total, size_bytes
