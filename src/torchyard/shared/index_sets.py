"""Some of a list's items, as a short word for a URL.

Owns: the encoding, a bit for each item, compressed, in base64's alphabet for URLs.
Leaves: what the list is to those who ask and answer.
Always: reading takes no more memory than the list has items; what is no such word is refused.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable


def encode(indexes: Iterable[int], length: int) -> str:
    """
    Args:
        length: how many items the list has.
    """
    bits = bytearray(-(-length // 8))
    for index in indexes:
        bits[index // 8] |= 1 << index % 8
    return base64.urlsafe_b64encode(zlib.compress(bits, 9)).decode().rstrip("=")


def decode(word: str, length: int) -> frozenset[int]:
    """
    Raises:
        ValueError: it was made for a list of another length, or by nobody.
    """
    size = -(-length // 8)
    reader = zlib.decompressobj()
    try:
        bits = reader.decompress(
            base64.b64decode(word + "=" * (-len(word) % 4), b"-_", validate=True), size + 1
        )
    except zlib.error as error:
        raise ValueError(f"damaged: {error}") from error
    if len(bits) != size or not reader.eof:
        raise ValueError(f"it is not for a list of {length} items")
    return frozenset(index for index in range(length) if bits[index // 8] >> index % 8 & 1)
