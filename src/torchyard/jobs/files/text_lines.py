"""Lines of a file of a job: where they begin, and which of them hold a text.

Owns: counting lines, an index by which a page reads a part of a long log, searching.
Leaves: the bytes to the route of files, which serves ranges of them.
Always: a line ends with a newline, or with the file; no more than a bounded part of a file is read
for one request, and the answer says where to go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torchyard.base import files
from torchyard.base.files import Readable

MOST_READ_BYTES = 256 << 20
"""For one request."""
_PIECE_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 8 << 20
_MOST_OFFSETS = 100_000


@dataclass(frozen=True)
class Index:
    """`offsets` are the first bytes of lines `first`, `first + every` and so on.

    `line_count` and `read_bytes` say how far the file was read, `size_bytes` how long it is. The
    last of `offsets` is where to go on.
    """

    size_bytes: int
    read_bytes: int
    line_count: int
    every: int
    first: int
    offsets: list[int]


@dataclass(frozen=True)
class Hits:
    """Lines that hold the text, and their first bytes.

    Where `more` is true, `next_line` and `next_byte` say where to go on.
    """

    lines: list[int]
    offsets: list[int]
    more: bool
    next_line: int
    next_byte: int


def index(
    file: Readable,
    every: int,
    first: int = 0,
    offset: int = 0,
    most_bytes: int = MOST_READ_BYTES,
) -> Index:
    """Count the lines of a file and note where every so manieth begins.

    Args:
        first, offset: a line and its first byte, as an answer before this one gave them.
    """
    offsets, lines, position = [offset], 0, offset
    ends_with_newline = True
    size_bytes = files.size_bytes(file)
    for piece in _pieces(file, offset, most_bytes):
        newlines = piece.count(b"\n")
        due = every - lines % every
        # Only where a line of the index begins within it, the piece is looked through.
        sizes = list(map(len, piece.split(b"\n"))) if due <= newlines else []
        begins = position
        for last in range(due, newlines + 1, every):
            past = max(0, last - every) if last > due else 0
            begins += sum(sizes[past:last]) + last - past
            offsets.append(begins)
        lines += newlines
        position += len(piece)
        ends_with_newline = piece.endswith(b"\n")
        if len(offsets) > _MOST_OFFSETS:
            break
    if offsets[-1] == position and len(offsets) > 1:
        # A line that has no byte yet.
        offsets.pop()
    count = first + lines + (not ends_with_newline)
    return Index(max(size_bytes, position), position, count, every, first, offsets)


def search(
    file: Readable,
    text: str,
    with_case: bool,
    limit: int,
    first: int = 0,
    offset: int = 0,
    most_bytes: int = MOST_READ_BYTES,
) -> Hits:
    """The lines that hold `text`, in order.

    Args:
        with_case: else case is ignored in ASCII.
        first, offset: a line and its first byte.
    """
    sought = text.encode()
    hits = _Search(sought if with_case else sought.lower(), limit, first, offset)
    position = offset
    for piece in _pieces(file, offset, most_bytes):
        position += len(piece)
        if hits.add(piece if with_case else piece.lower()):
            return hits.result(more=True)
    hits.end()
    return hits.result(more=position < files.size_bytes(file))


class _Search:
    """A search that gets a file piece by piece.

    Attributes:
        number, start: the line that the rest is in, and its first byte.
        position: the first byte of the rest.
    """

    def __init__(self, sought: bytes, limit: int, first: int, offset: int) -> None:
        self._sought = sought
        self._limit = limit
        self._lines: list[int] = []
        self._offsets: list[int] = []
        self._number, self._start, self._position = first, offset, offset
        self._rest = b""

    def add(self, piece: bytes) -> bool:
        """Whether there are as many hits as wanted."""
        lines, newline, rest = (self._rest + piece).rpartition(b"\n")
        block = lines + newline
        if block:
            for line, start in _in_block(block, self._sought, self._number, self._position):
                if self._note(line, self._start if line == self._number else start):
                    ends = block.index(b"\n", max(0, self._offsets[-1] - self._position)) + 1
                    self._number, self._start = line + 1, self._position + ends
                    return True
            self._number += block.count(b"\n")
            self._position += len(block)
            self._start = self._position
        self._rest = rest
        if len(rest) > _LONGEST_LINE_BYTES:
            # The rest of the line is searched, too, but not joined to what was searched already.
            if self._sought in rest:
                self._note(self._number, self._start)
            overlap = len(self._sought)
            self._position += len(rest) - overlap
            self._rest = rest[-overlap:]
        return False

    def end(self) -> None:
        if self._sought in self._rest:
            self._note(self._number, self._start)

    def result(self, more: bool) -> Hits:
        return Hits(self._lines, self._offsets, more, self._number, self._start)

    def _note(self, line: int, start: int) -> bool:
        if not self._lines or self._lines[-1] != line:
            self._lines.append(line)
            self._offsets.append(start)
        return len(self._lines) == self._limit


def _in_block(block: bytes, sought: bytes, number: int, position: int) -> Iterator[tuple[int, int]]:
    """(line, first byte) of the hits in whole lines, each line once."""
    counted, offset = 0, 0
    while (at := block.find(sought, offset)) >= 0:
        start = block.rfind(b"\n", 0, at) + 1
        number += block.count(b"\n", counted, start)
        counted = start
        yield number, position + start
        end = block.find(b"\n", at)
        if end < 0:
            return
        offset = end + 1


def _pieces(file: Readable, offset: int, most_bytes: int) -> Iterator[bytes]:
    left = most_bytes
    with files.reading(file) as opened:
        opened.seek(offset)
        while left > 0:
            piece = opened.read(min(_PIECE_BYTES, left))
            if not piece:
                return
            left -= len(piece)
            yield piece
