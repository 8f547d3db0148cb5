"""Read a long list out of a JSON document, one item at a time.

Owns: the items of one member of a JSON object, from bytes that come bit by bit.
Leaves: documents that are needed whole to large_json.py, what an item means to the caller.
Always: no more than a few MiB of the text are in memory, nor Python's lock is held for longer than
one item takes; what is wrong behind the items is found after they were yielded.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

MOST_ITEM_CHARACTERS = 256 << 10
"""One item, and each of the other members, is not longer."""
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def items(chunks: Iterable[bytes], member: str) -> Iterator[Any]:
    """The items of the list that the document, a JSON object, has as `member`.

    Raises:
        ValueError: it is not JSON, not an object with such a list, or an item is too long.
    """
    text = _Text(chunks)
    text.expect("{")
    is_there, is_first = False, True
    while not text.takes("}"):
        if not is_first:
            text.expect(",")
        is_first = False
        name = text.value()
        if not isinstance(name, str):
            raise ValueError("the name of a member is not a string")
        text.expect(":")
        if name != member:
            text.value()
        elif is_there:
            raise ValueError(f"it has two `{member}`")
        else:
            is_there = True
            yield from _list(text)
    text.expect_end()
    if not is_there:
        raise ValueError(f"it has no `{member}`")


def _list(text: _Text) -> Iterator[Any]:
    text.expect("[")
    if text.takes("]"):
        return
    while True:
        yield text.value()
        if text.takes("]"):
            return
        text.expect(",")


class _Text:
    """What comes next of the document."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._text, self._at = "", 0
        first = next(self._chunks, b"")
        decoder = codecs.getincrementaldecoder(json.detect_encoding(first))
        self._decoder = decoder("surrogatepass")
        self._is_whole = False
        self._text = self._decoder.decode(first)

    def expect(self, mark: str) -> None:
        if not self.takes(mark):
            raise ValueError(f"`{mark}` is missing")

    def takes(self, mark: str) -> bool:
        """Whether the mark comes next; then it is behind us."""
        self._skip_spaces()
        if not self._text.startswith(mark, self._at):
            return False
        self._at += 1
        return True

    def expect_end(self) -> None:
        self._skip_spaces()
        if self._at != len(self._text):
            raise ValueError("something follows the document")

    def value(self) -> Any:
        self._skip_spaces()
        while not self._is_whole and len(self._text) - self._at <= MOST_ITEM_CHARACTERS:
            self._fill()
        try:
            value, end = _DECODER.raw_decode(self._text, self._at)
        except (json.JSONDecodeError, RecursionError) as error:
            long = len(self._text) - self._at > MOST_ITEM_CHARACTERS
            reason = f", or longer than {MOST_ITEM_CHARACTERS:,} characters" if long else ""
            raise ValueError(f"an item is not JSON{reason}") from error
        if end - self._at > MOST_ITEM_CHARACTERS:
            raise ValueError(f"an item is longer than {MOST_ITEM_CHARACTERS:,} characters")
        self._at = end
        return value

    def _skip_spaces(self) -> None:
        while True:
            spaces = _SPACE.match(self._text, self._at)
            assert spaces is not None
            self._at = spaces.end()
            if self._at < len(self._text) or self._is_whole:
                return
            self._fill()

    def _fill(self) -> None:
        chunk = next(self._chunks, None)
        more = self._decoder.decode(chunk or b"", chunk is None)
        self._is_whole = chunk is None
        self._text, self._at = self._text[self._at :] + more, 0
