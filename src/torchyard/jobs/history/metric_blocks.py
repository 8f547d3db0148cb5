"""Metric points packed into bytes.

Owns: the form of a packed block, its bounds, when two points are equal, which one is the latest.
Leaves: where blocks are kept to history_store.py.
Always: unpacking gives back what was packed, bit for bit but for the payload of a NaN.

A block is three little-endian arrays of the same length, one behind the other: timestamps as
int64, steps as int64, values as float64. 24 bytes a point, no header.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torchyard.shared.record_rules import NAN

POINT_BYTES = 24
# Points of a key gather in a tail that is rewritten at each append, so it must be small; a block
# is written once. 128 single posts make a block of 3 KB, a batch of 1,000 two of 12 KB.
TAIL_POINTS = 128
BLOCK_POINTS = 512
_ONE_POINT = struct.Struct("<qqd")


class Point(NamedTuple):
    """One measurement; `timestamp` in ms since 1970. A tuple, because there are millions."""

    timestamp: int
    step: int
    value: float


@dataclass(frozen=True)
class Bounds:
    """The smallest box that holds some points; no value bounds when all are NaN."""

    min_timestamp: int
    max_timestamp: int
    min_step: int
    max_step: int
    min_value: float | None
    max_value: float | None


def point(timestamp: int, step: int, value: float) -> Point:
    """A point that is equal to every other one with the same content, NaN included."""
    return Point(timestamp, step, value if value == value else NAN)


def pack(points: Sequence[Point]) -> bytes:
    if len(points) == 1:
        return _ONE_POINT.pack(*points[0])
    return b"".join(
        (
            _little(array("q", [point.timestamp for point in points])),
            _little(array("q", [point.step for point in points])),
            _little(array("d", [point.value for point in points])),
        )
    )


def unpack(data: bytes) -> list[Point]:
    third = len(data) // 3
    assert third % 8 == 0, f"a block of {len(data)} bytes"
    values = _array("d", data[2 * third :])
    return list(
        map(
            Point._make,
            zip(
                _array("q", data[:third]),
                _array("q", data[third : 2 * third]),
                (value if value == value else NAN for value in values),
                strict=True,
            ),
        )
    )


def first_step(data: bytes) -> int | None:
    """Of a block; None when it is empty."""
    third = len(data) // 3
    return int.from_bytes(data[third : third + 8], "little", signed=True) if data else None


def joined(first: bytes, second: bytes) -> bytes:
    """The block of the points of both."""
    old, new = len(first) // 3, len(second) // 3
    return b"".join(
        part
        for column in range(3)
        for part in (
            first[column * old : column * old + old],
            second[column * new : column * new + new],
        )
    )


def arrays(data: bytes) -> tuple[array[int], array[int], array[float]]:
    """Timestamps, steps and values of a block, without an object for each point."""
    third = len(data) // 3
    assert third % 8 == 0, f"a block of {len(data)} bytes"
    return (
        _integers(data[:third]),
        _integers(data[third : 2 * third]),
        _array("d", data[2 * third :]),
    )


def bounds(points: Sequence[Point]) -> Bounds:
    """The bounds of at least one point."""
    timestamps = [point.timestamp for point in points]
    steps = [point.step for point in points]
    values = [point.value for point in points if point.value == point.value]
    return Bounds(
        min(timestamps),
        max(timestamps),
        min(steps),
        max(steps),
        min(values, default=None),
        max(values, default=None),
    )


def cut(points: Sequence[Point]) -> Iterator[Sequence[Point]]:
    """In pieces of one block at the most."""
    for start in range(0, len(points), BLOCK_POINTS):
        yield points[start : start + BLOCK_POINTS]


def latest(points: Iterable[Point]) -> Point:
    """The one MLflow calls the latest: by step, then timestamp, then value; a NaN counts as 0."""
    return max(points, key=_age)


def _age(point: Point) -> tuple[int, int, float]:
    return point.step, point.timestamp, point.value if point.value == point.value else 0.0


def _little(numbers: array[int] | array[float]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _integers(data: bytes) -> array[int]:
    numbers: array[int] = array("q")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _array(code: str, data: bytes) -> array[float]:
    numbers: array[float] = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
