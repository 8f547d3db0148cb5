"""Bound what a JSON document becomes in memory.

Owns: counting its values without parsing it.
Leaves: its length to request_bodies.py.
Always: no document has more values than it counts.
"""

from __future__ import annotations

_BETWEEN_VALUES = (b",", b"[", b"{", b"<")
# Spaces, and what UTF-8, UTF-16 and UTF-32 may begin with.
_BEFORE_DOCUMENT = b" \t\n\r\v\f\0\xef\xbb\xbf\xfe\xff"


def most_values(content: bytes) -> int:
    """How many values JSON or XML may have, at most; 0 for other text."""
    if content.lstrip(_BEFORE_DOCUMENT)[:1] not in (b"{", b"[", b"<", b'"'):
        return 0
    return sum(content.count(mark) for mark in _BETWEEN_VALUES)
