"""Foreign text on its way to a terminal, which control characters could control.

Owns: leaving them out, escaping them, and keeping the colours of our own text.
Leaves: what a job's ranks write to a job's stream, which goes on as bytes.
Always: line feeds stay; C1 controls and marks that turn the direction of a text count as controls.
"""

from __future__ import annotations

import re

_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,32}m)")


def plain(text: str | None) -> str:
    """The text without colours and control characters."""
    if not text or text.isprintable():
        return text or ""
    return _replaced(_COLOUR.sub("", text.expandtabs()))


def coloured(text: str) -> str:
    """The text with its colours, and without other control characters."""
    if text.isprintable():
        return text
    parts = _COLOUR.split(text.expandtabs())
    parts[::2] = map(_replaced, parts[::2])
    return "".join(parts)


def escaped(text: str) -> str:
    """The text with its control characters spelled out, as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escape(c) for c in text)


def escaped_json(text: str) -> str:
    """JSON of the same value, without characters that a terminal could act on."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)


def _replaced(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4))
