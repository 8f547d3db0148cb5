"""Metric points as bytes."""

from __future__ import annotations

import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from torchyard.jobs.history import metric_blocks
from torchyard.jobs.history.metric_blocks import Point, point
from torchyard.shared.record_rules import INT64_MAX, INT64_MIN, NAN

int64 = st.integers(INT64_MIN, INT64_MAX)
points = st.lists(st.builds(point, int64, int64, st.floats()), max_size=60)


@given(points)
def test_unpacking_gives_what_was_packed(some: list[Point]) -> None:
    unpacked = metric_blocks.unpack(metric_blocks.pack(some))

    assert unpacked == some
    # Equality says nothing of the sign of a zero.
    signs = [math.copysign(1, point.value) for point in some if point.value == point.value]
    assert [
        math.copysign(1, point.value) for point in unpacked if point.value == point.value
    ] == signs


def test_the_form_is_three_little_endian_arrays() -> None:
    data = metric_blocks.pack([Point(1, 2, 0.5), Point(3, -4, math.inf)])

    assert data == struct.pack("<2q2q2d", 1, 3, 2, -4, 0.5, math.inf)


@given(points.filter(bool))
def test_bounds_hold_every_point(some: list[Point]) -> None:
    box = metric_blocks.bounds(some)

    assert all(box.min_timestamp <= point.timestamp <= box.max_timestamp for point in some)
    assert all(box.min_step <= point.step <= box.max_step for point in some)
    numbers = [point.value for point in some if point.value == point.value]
    assert (box.min_value, box.max_value) == (
        min(numbers, default=None),
        max(numbers, default=None),
    )


@given(points)
def test_pieces_are_whole_and_small(some: list[Point]) -> None:
    many = some * 40
    pieces = list(metric_blocks.cut(many))

    assert [point for piece in pieces for point in piece] == many
    assert all(0 < len(piece) <= metric_blocks.BLOCK_POINTS for piece in pieces)


def test_every_nan_is_the_same_point() -> None:
    made = {point(1, 1, float("nan")), point(1, 1, -float("nan")), Point(1, 1, NAN)}
    read = metric_blocks.unpack(metric_blocks.pack(list(made)))

    assert len(made) == 1
    assert set(read) == made


def test_the_latest_is_by_step_then_time_then_value() -> None:
    some = [Point(9, 1, 9.0), Point(1, 2, 0.0), Point(2, 2, -1.0), Point(2, 2, NAN)]

    assert metric_blocks.latest(some) == Point(2, 2, NAN)
    assert metric_blocks.latest([*some, Point(2, 2, 0.5)]) == Point(2, 2, 0.5)
