"""Tokens in what a rank prints: masked before anything leaves the node.

Owns: what a token looks like, stars in its place.
Leaves: cutting a file into chunks to logs.py.
Always: as many bytes come out as went in, so offsets hold; a byte is masked exactly when it is
part of a token, wherever the text around it was cut.
"""

from __future__ import annotations

import re

_MARK = b"yard_"
_TOKEN = re.compile(rb"yard_[par]_[A-Za-z0-9_-]{43}")
_START = re.compile(rb"yard_[par]_[A-Za-z0-9_-]{0,42}\Z")
_PREFIXES = (b"yard_p_", b"yard_a_", b"yard_r_")

LONGEST = len(b"yard_p_") + 43
"""Bytes of a token; a chunk's neighbours are looked at as far as this, less one."""


def mask(data: bytes) -> bytes:
    """The data with every whole token replaced by stars."""
    place = data.find(_MARK)
    if place < 0:
        return data
    masked = bytearray(data)
    # Every place is tried, also inside a match: then the answer does not depend on the cut.
    while place >= 0:
        if _TOKEN.match(data, place):
            masked[place : place + LONGEST] = b"*" * LONGEST
        place = data.find(_MARK, place + 1)
    return bytes(masked)


def unfinished(data: bytes) -> int:
    """How many bytes at the end may be the start of a token that goes on; 0 when none."""
    tail = data[-(LONGEST - 1) :]
    place = tail.find(b"y")
    while place >= 0:
        rest = tail[place:]
        if _START.match(rest) or any(prefix.startswith(rest) for prefix in _PREFIXES):
            return len(rest)
        place = tail.find(b"y", place + 1)
    return 0
