"""Lists in JSON documents, item by item."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from torchyard.base.bodies import json_items


def _items(content: bytes, size_bytes: int = 7) -> list[Any]:
    return list(json_items.items(_chunks(content, size_bytes), "files"))


def _chunks(content: bytes, size_bytes: int) -> Iterator[bytes]:
    for start in range(0, len(content), size_bytes):
        yield content[start : start + size_bytes]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("size_bytes", [5, 64, 1 << 20])
def test_the_items_are_those_of_the_document(encoding: str, size_bytes: int) -> None:
    files = [{"path": "größe/😀", "size": 12345678901}, 1, -0.5e3, "a,]}", None, [], {}, [[1], {}]]
    for indent in (None, 2):
        document = {"version": [{"files": 3}], "files": files, "more": {"files": []}}
        content = json.dumps(document, ensure_ascii=False, indent=indent).encode(encoding)
        assert _items(content, size_bytes) == files
    assert _items(b'{"files": []}') == _items(b' {"a": 1, "files" :[ ]} \n') == []


@pytest.mark.parametrize(
    "text", ["", " ", "{", "[]", "{}", '{"files"', '{"files":', '{"files": {}}', '{"files": 1}',
             '{"files": [', '{"files": [1', '{"files": [1,]}', '{"files": [,1]}',
             '{"files": [1 2]}',
             '{"files": [1]', '{"files": [1]} x', '{"files": [1],}', '{"files": [1] "a": 2}',
             '{"files": [1], "files": [2]}', '{1: 2, "files": []}', '{"files": ["a]}',
             '{"files": [' + "[" * 100_000, '{"files": [1], "a": tru}'],
)  # fmt: skip
def test_what_is_not_such_a_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        _items(text.encode())


def test_an_item_has_a_bounded_length() -> None:
    fits = "x" * (json_items.MOST_ITEM_CHARACTERS - 2)
    assert _items(json.dumps({"files": [fits, fits]}).encode(), 1000) == [fits, fits]
    for item in (fits + "x", [0] * json_items.MOST_ITEM_CHARACTERS):
        for document in ({"files": [1, item]}, {"other": item, "files": []}):
            with pytest.raises(ValueError, match="longer than 262,144 characters"):
                _items(json.dumps(document).encode(), 1 << 20)


# Measuring memory makes it slow, more so where others work.
@pytest.mark.timeout(600)
def test_a_long_list_takes_little_memory() -> None:
    entry = b'{"path": "folder/file", "size": 1, "parts": [1, 2, 3]},'
    count = (16 << 20) // len(entry)

    def chunks() -> Iterator[bytes]:
        yield b'{"files": ['
        for _ in range(count // 1000):
            yield entry * 1000
        yield b"0]}"

    tracemalloc.start()
    try:
        assert sum(1 for _ in json_items.items(chunks(), "files")) == count // 1000 * 1000 + 1
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
