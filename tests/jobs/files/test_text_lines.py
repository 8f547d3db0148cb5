"""Lines of long files against a simple reading of the same bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from torchyard.jobs.files import text_lines

_PARTS = [b"ab", b"x", b"\n", b"Err or", b"\n\n", b"ERR", b"\r\n", "é".encode()]


def _texts() -> list[bytes]:
    source = random.Random(1)
    texts = [b"", b"\n", b"a", b"a\n", b"err" * 400, b"err\n" * 100]
    for _ in range(100):
        parts = [*_PARTS, b"err" * source.randint(1, 60)]
        texts.append(b"".join(source.choices(parts, k=source.randint(0, 80))))
    return texts


def _lines(text: bytes) -> tuple[list[bytes], list[int]]:
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    return lines, starts[: len(lines)]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a kilobyte are read in many pieces, and a line of 150 bytes is a long one."""
    monkeypatch.setattr(text_lines, "_PIECE_BYTES", 37)
    monkeypatch.setattr(text_lines, "_LONGEST_LINE_BYTES", 150)


@pytest.mark.usefixtures("small_pieces")
def test_an_index_has_the_first_byte_of_every_so_manieth_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    for number, text in enumerate(_texts()):
        file.write_bytes(text)
        lines, starts = _lines(text)
        every = 1 + number % 7
        index = text_lines.index(file, every)
        assert index.line_count == len(lines)
        assert index.offsets == (starts[::every] or [0])
        position = number % len(index.offsets)
        grown = text_lines.index(file, every, position * every, index.offsets[position])
        assert (grown.line_count, grown.offsets) == (len(lines), index.offsets[position:])


@pytest.mark.usefixtures("small_pieces")
def test_a_search_finds_each_line_once_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    file = tmp_path / "log"
    for text in _texts():
        file.write_bytes(text)
        lines, starts = _lines(text)
        expected = [number for number, line in enumerate(lines) if b"err" in line.lower()]
        hits = text_lines.search(file, "eRr", False, 10_000)
        assert hits.lines == expected and not hits.more
        assert hits.offsets == [starts[number] for number in expected]
        with_case = [number for number, line in enumerate(lines) if b"ERR" in line]
        assert text_lines.search(file, "ERR", True, 10_000).lines == with_case
        parts: list[int] = []
        first = offset = 0
        for _ in range(len(lines) + 1):
            hits = text_lines.search(file, "err", False, 2, first, offset)
            parts += hits.lines
            first, offset = hits.next_line, hits.next_byte
            if not hits.more:
                break
        assert parts == expected


def test_one_request_reads_a_bounded_part(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"line\n" * 1000 + b"needle\n")
    index = text_lines.index(file, 100, most_bytes=1000)
    assert (index.read_bytes, index.size_bytes, index.line_count) == (1000, 5007, 200)
    hits = text_lines.search(file, "needle", True, 10, most_bytes=1000)
    assert (hits.lines, hits.more, hits.next_line, hits.next_byte) == ([], True, 200, 1000)
    rest = text_lines.search(file, "needle", True, 10, hits.next_line, hits.next_byte)
    assert (rest.lines, rest.offsets, rest.more) == ([1000], [5000], False)
