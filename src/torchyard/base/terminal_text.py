"""Foreign text on its way to a terminal, which control characters could control.

Owns: leaving them out, escaping them, and keeping the colours of our own text.
Leaves: whose output is cleaned to the commands that print it.
Always: line feeds stay; C1 controls and marks that turn the direction of a text count as controls.
"""

from __future__ import annotations

import re

_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,32}m)")
# In UTF-8: a colour, or C0 and C1 controls and what turns the direction of a text.
_CONTROL = re.compile(
    rb"(\x1b\[[0-9;]{0,32}m)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]"
    rb"|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]"
)
# What may go on as one of these in the next piece.
_BEGUN = re.compile(rb"(?:\x1b(?:\[[0-9;]{0,32})?|\xc2|\xe2[\x80\x81]?)\Z")


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


class ColouredBytes:
    """What a program has written, piece by piece, with its colours and progress bars' returns, and
    without other control characters.
    """

    def __init__(self) -> None:
        self._tail = b""

    def take(self, content: bytes) -> bytes:
        """As much of the output as can't be the beginning of a control sequence."""
        content = self._tail + content
        begun = _BEGUN.search(content)
        end = len(content) if begun is None else begun.start()
        self._tail = content[end:]
        return _CONTROL.sub(_colour_or_mark, content[:end])


def _colour_or_mark(match: re.Match[bytes]) -> bytes:
    return match[1] or "�".encode()


def _replaced(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4))
