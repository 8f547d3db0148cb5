"""Sizes of chunks, which every reader of a request must read alike."""

from __future__ import annotations

import pytest

from torchyard.shared import chunks


@pytest.mark.parametrize(
    ("line", "size_bytes"),
    [(b"0\r\n", 0), (b"1a\r\n", 26), (b"00A\n", 10), (b"5;name=value\r\n", 5), (b"5 ; x\r\n", 5)],
)
def test_a_size_is_hexadecimal(line: bytes, size_bytes: int) -> None:
    assert chunks.size_bytes(line) == size_bytes


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\r\n",
        b"0x5\r\n",
        b"+5\r\n",
        b"-5\r\n",
        b"5_0\r\n",
        b" 5\r\n",
        b"5\r5\r\n",
        b"5 5\r\n",
        b"\xd9\xa5\r\n",
        b"f" * 16,
        b"5;a\nb\r\n",
    ],
)
def test_what_another_reader_may_read_otherwise_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        chunks.size_bytes(line)
