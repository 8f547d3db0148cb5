"""Which quotes of the shell a place in a command stands in, and how a text is written there.

Owns: reading quotes, escapes, comments and substitutions as bash does; quoting.
Leaves: which places to trial_command.py.
Always: one pass; a quoted text stands for itself, and holds no bracket that the worker replaces.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

PLAIN, SINGLE, DOUBLE, ANSI = "", "'", '"', "$'"
UNQUOTABLE = "<<"
# What is escaped, and what ends a word's quotes and begins them again.
_WRITTEN: dict[str, tuple[dict[str, str], str]] = {
    PLAIN: ({"'": "'\"'\"'"}, "''"),
    SINGLE: ({"'": "'\"'\"'"}, "''"),
    DOUBLE: ({character: f"\\{character}" for character in '\\$"`'}, '""'),
    ANSI: ({character: f"\\{character}" for character in "\\'"}, "'$'"),
    UNQUOTABLE: ({}, ""),
}
_BREAKS = frozenset(" \t\n;|&()")
_EXPRESSION = ("${{", "}}")


class _Reader:
    """The quotes around a position that moves through a command.

    `nested` are the quotes around each `$(` and backtick that is open.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.position = 0
        self.quote = PLAIN
        self.nested: list[tuple[str, str]] = []
        self.has_here_document = False

    def current_quotes(self) -> str:
        """In a here-document nothing is quoted; between backticks, quotes are read twice."""
        if self.has_here_document or any(end == "`" for end, _ in self.nested):
            return UNQUOTABLE
        return self.quote

    def advance(self, until: int) -> None:
        while self.position < until:
            self._step()

    def _step(self) -> None:
        text, at = self.command, self.position
        character = text[at]
        if text.startswith(_EXPRESSION[0], at):
            end = text.find(_EXPRESSION[1], at)
            self.position = len(text) if end < 0 else end + len(_EXPRESSION[1])
        elif self.quote == SINGLE:
            self._move(PLAIN if character == "'" else self.quote)
        elif character == "\\":
            self.position += 2
        elif self.quote == ANSI:
            self._move(PLAIN if character == "'" else self.quote)
        elif text.startswith("$(", at):
            self._open(")", 2)
        elif character == "`":
            self._close() if self._is_inside("`") else self._open("`", 1)
        elif character == '"':
            self._move(PLAIN if self.quote == DOUBLE else DOUBLE)
        elif self.quote == DOUBLE:
            self.position += 1
        else:
            self._step_plain(character)

    def _step_plain(self, character: str) -> None:
        text, at = self.command, self.position
        if text.startswith("$'", at):
            self._move(ANSI, 2)
        elif character == "'":
            self._move(SINGLE)
        elif character == "(":
            self._open(")", 1)
        elif character == ")" and self._is_inside(")"):
            self._close()
        elif character == "#" and (not at or text[at - 1] in _BREAKS):
            end = text.find("\n", at)
            self.position = len(text) if end < 0 else end
        elif text.startswith("<<<", at):
            self.position += 3
        else:
            self.has_here_document |= text.startswith("<<", at)
            self.position += 1

    def _move(self, quote: str, length: int = 1) -> None:
        self.quote = quote
        self.position += length

    def _open(self, end: str, length: int) -> None:
        self.nested.append((end, self.quote))
        self._move(PLAIN, length)

    def _is_inside(self, end: str) -> bool:
        return bool(self.nested) and self.nested[-1][0] == end

    def _close(self) -> None:
        self._move(self.nested.pop()[1])


def at(command: str, positions: Sequence[int]) -> list[str]:
    """The quotes at each position, which rise; `UNQUOTABLE` where none do what they should."""
    reader = _Reader(command)
    quotes = []
    for position in positions:
        reader.advance(position)
        # Past it: the place is in a comment, or behind a backslash.
        is_skipped = reader.position > position
        quotes.append(UNQUOTABLE if is_skipped else reader.current_quotes())
    return quotes


def is_plain(text: str) -> bool:
    """Whether it stands for itself without quotes, and anywhere."""
    return bool(text) and shlex.quote(text) == text


def quoted(text: str, quote: str) -> str:
    """The text as it is written at a place with these quotes around it."""
    if is_plain(text):
        return text
    escape, separator = _WRITTEN[quote]
    if quote == PLAIN:
        return f"'{_separated(text, escape, separator)}'"
    start = separator if text.startswith(("{", "[", "]")) else ""
    end = separator if text.endswith(("$", "]")) else ""
    return f"{start}{_separated(text, escape, separator)}{end}"


def _separated(text: str, escape: Mapping[str, str], separator: str) -> str:
    """The text escaped, with what opens or closes one of the worker's brackets taken apart."""
    parts = []
    previous = ""
    for character in text:
        if (previous == "$" and character in "{[") or (previous == character == "]"):
            parts.append(separator)
        parts.append(escape.get(character, character))
        previous = character
    return "".join(parts)
