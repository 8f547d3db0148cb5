"""Sums of files: the same whichever library computes them, and however many threads."""

from __future__ import annotations

import os
import random
import sys
import types
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from torchyard.train.checkpoint import checksums

pytestmark = pytest.mark.torch


def test_the_sum_of_two_parts_is_that_of_the_whole() -> None:
    source = random.Random(59)
    content = source.randbytes(200_000)
    for cut in (0, 1, 7, 4096, 65_537, len(content) - 1, len(content)):
        first, second = content[:cut], content[cut:]
        combined = checksums.combine(zlib.crc32(first), zlib.crc32(second), len(second))
        assert combined == zlib.crc32(content)


@pytest.mark.parametrize("size_bytes", [0, 1, (1 << 20) + 3, 64 << 20, (128 << 20) + 5])
def test_a_file_of_several_parts_has_zlibs_sum(tmp_path: Path, size_bytes: int) -> None:
    content = bytearray(size_bytes)
    for offset in range(0, size_bytes, 999_983):
        content[offset] = 1 + offset % 255
    file = tmp_path / "file"
    file.write_bytes(content)
    assert checksums.file_crc32(file) == (size_bytes, zlib.crc32(content))


def test_a_short_read_sums_no_byte_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A network file system may read less than it is asked for in the middle of a file."""
    content = random.Random(60).randbytes(1 << 20) * 65
    file = tmp_path / "file"
    file.write_bytes(content)
    read = os.preadv

    def read_less(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        return read(descriptor, [buffers[0][:4096]] if offset == 5 << 20 else buffers, offset)

    monkeypatch.setattr(os, "preadv", read_less)
    assert checksums.file_crc32(file) == (len(content), zlib.crc32(content))


def test_the_fastest_library_here_gives_known_sums() -> None:
    """Of every byte, at every offset within a word, and with the sum of an earlier part.

    The numbers are those of `zlib.crc32(bytes(range(256)) * 257)` and
    `zlib.crc32(bytes(range(256)) * 257, 0xCBF43926)`, written down once: a checkpoint that is
    verified in another environment holds such numbers.
    """
    content = bytes(range(256)) * 257
    assert checksums.crc32(content, 0) == 0x6D4D0C00
    assert checksums.crc32(content, 0xCBF43926) == 0x378E275A


@pytest.mark.parametrize("crc32", [None, lambda data, value: 7, "not callable"])
def test_a_library_that_computes_something_else_is_left_out(
    monkeypatch: pytest.MonkeyPatch, crc32: object
) -> None:
    for name in ("isal", "isal.isal_zlib", "zlib_ng", "zlib_ng.zlib_ng"):
        module = types.ModuleType(name)
        if crc32 is not None:
            module.__dict__["crc32"] = crc32
        monkeypatch.setitem(sys.modules, name, module)
    assert checksums.fastest_crc32() is zlib.crc32


def test_a_faster_library_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def crc32(data: bytes, value: int) -> int:
        return zlib.crc32(data, value)

    monkeypatch.setitem(sys.modules, "isal", types.ModuleType("isal"))
    module = types.ModuleType("isal.isal_zlib")
    module.__dict__["crc32"] = crc32
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", module)
    assert checksums.fastest_crc32() is crc32
