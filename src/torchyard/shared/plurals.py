"""Nouns of messages, one or more of what they name."""

from __future__ import annotations


def plural(noun: str, count: int) -> str:
    """The noun as it stands behind the count: `1 node`, `0 nodes`, `2 processes`."""
    if count == 1:
        return noun
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")
