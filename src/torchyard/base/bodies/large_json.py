"""Parse large JSON without keeping other threads from their work.

Owns: parsing a document element by element down to a depth.
Leaves: limits on its size and values to request_bodies.py.
Always: the result is that of `json.loads`, and so is the kind of error. `json.loads` holds Python's
lock from the first byte to the last, for tens of milliseconds a MiB.
"""

from __future__ import annotations

import json
import re
from typing import Any

_SLICED_BYTES = 256 << 10
_DEPTH = 2
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def loads(content: bytes, decoder: json.JSONDecoder = _DECODER) -> Any:
    """
    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    if len(content) <= _SLICED_BYTES and decoder is _DECODER:
        return json.loads(content)
    text = content.decode(json.detect_encoding(content), "surrogatepass")
    depth = _DEPTH if len(content) > _SLICED_BYTES else 0
    value, end = _value(decoder, text, _skip(text, 0), depth)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return value


def _value(decoder: json.JSONDecoder, text: str, at: int, depth: int) -> tuple[Any, int]:
    """The value at `at`, and where what follows it begins."""
    if depth and text.startswith("[", at):
        return _array(decoder, text, at + 1, depth - 1)
    if depth and text.startswith("{", at):
        return _object(decoder, text, at + 1, depth - 1)
    value, end = decoder.raw_decode(text, at)
    return value, _skip(text, end)


def _array(decoder: json.JSONDecoder, text: str, at: int, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    at = _skip(text, at)
    if text.startswith("]", at):
        return items, _skip(text, at + 1)
    while True:
        item, at = _value(decoder, text, at, depth)
        items.append(item)
        if text.startswith("]", at):
            return items, _skip(text, at + 1)
        at = _after(text, at, ",")


def _object(
    decoder: json.JSONDecoder, text: str, at: int, depth: int
) -> tuple[dict[str, Any], int]:
    items: dict[str, Any] = {}
    at = _skip(text, at)
    if text.startswith("}", at):
        return items, _skip(text, at + 1)
    while True:
        if not text.startswith('"', at):
            raise json.JSONDecodeError(
                "Expecting property name enclosed in double quotes", text, at
            )
        name, at = _value(decoder, text, at, 0)
        items[name], at = _value(decoder, text, _after(text, at, ":"), depth)
        if text.startswith("}", at):
            return items, _skip(text, at + 1)
        at = _after(text, at, ",")


def _after(text: str, at: int, mark: str) -> int:
    if not text.startswith(mark, at):
        raise json.JSONDecodeError(f"Expecting {mark!r} delimiter", text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()
