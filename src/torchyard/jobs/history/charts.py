"""Reduce the points of one key to what a chart can show.

Owns: smallest and largest value per column, when a chart is exact.
Leaves: reading blocks to chart_store.py.
Always: every extreme of the range is in a column; a block that lies in one column is taken by its
bounds and never unpacked; a NaN is never an extreme, and a column of NaN alone says so.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import NamedTuple

from torchyard.shared.record_rules import NAN

# So many looks at a block cost less than putting it in order, which resumed runs and those of
# several ranks need.
_FEW_COLUMNS = 5


class Span(NamedTuple):
    """One packed block as a chart sees it: `first` and `last` are its smallest and largest x.

    `low` and `high` are None when all its values are NaN.
    """

    number: int
    points: int
    first: int
    last: int
    low: float | None
    high: float | None


class Line(NamedTuple):
    """Points as two arrays of one length, in order of arrival."""

    xs: array[int]
    values: array[float]


class Column(NamedTuple):
    """What lies from `x` up to the next column; NaN when there is nothing but NaN."""

    x: int
    low: float
    high: float


@dataclass(frozen=True)
class Chart:
    """`points`, by x, when they are few enough to be shown as they are, else `columns`, by x.

    `count` is how many points lie in the range, `start` and `end` the x of its first and last.
    """

    count: int
    start: int
    end: int
    points: Sequence[tuple[int, float]] = ()
    columns: Sequence[Column] = ()

    @property
    def exact(self) -> bool:
        return not self.columns


Read = Callable[[Sequence[int]], Iterable[Line]]
"""Unpack the blocks of these numbers."""


def reduce(
    spans: Sequence[Span],
    read: Read,
    tail: Line,
    width: int,
    start: int | None = None,
    end: int | None = None,
) -> Chart:
    """The points with `start` <= x <= `end` in at most `width` columns, or as they are.

    Args:
        tail: the points that are in no block yet.
        width: columns, at least 1; up to twice as many points are given exactly.
        start: the first x of the range, that of the points when None; `end` likewise.
    """
    lowest = min([span.first for span in spans] + list(tail.xs), default=0)
    highest = max([span.last for span in spans] + list(tail.xs), default=-1)
    start = lowest if start is None else max(start, lowest)
    end = highest if end is None else min(end, highest)
    if start > end:
        return Chart(0, start, end)
    overlapping = [span for span in spans if span.first <= end and span.last >= start]
    limit = 2 * width
    inside = sum(span.points for span in overlapping if start <= span.first and span.last <= end)
    if inside <= limit:
        points = _exact(overlapping, read, tail, start, end, limit)
        if points is not None:
            return Chart(len(points), start, end, points=points)
    return _reduced(overlapping, read, tail, start, end, width)


def _exact(
    spans: Sequence[Span], read: Read, tail: Line, start: int, end: int, limit: int
) -> list[tuple[int, float]] | None:
    """The points of the range by x, those of one x in order of arrival; None when too many."""
    pairs: list[tuple[int, float]] = []
    for xs, values in _all(spans, read, tail):
        pairs += [pair for pair in zip(xs, values, strict=True) if start <= pair[0] <= end]
        if len(pairs) > limit:
            return None
    return sorted(pairs, key=_x)


def _reduced(
    spans: Sequence[Span], read: Read, tail: Line, start: int, end: int, width: int
) -> Chart:
    size = end - start + 1
    scale = _Scale(start, size, min(width, size))
    grid = _Grid(scale)
    split = []
    for span in spans:
        if start <= span.first and span.last <= end:
            column = scale.column(span.first)
            if column == scale.column(span.last):
                grid.widen(column, span.low, span.high)
                grid.count += span.points
                continue
        split.append(span)
    for line in _all(split, read, tail):
        grid.add(line)
    return Chart(grid.count, start, end, columns=grid.columns())


def _all(spans: Sequence[Span], read: Read, tail: Line) -> Iterator[Line]:
    yield from read([span.number for span in spans])
    yield tail


@dataclass(frozen=True)
class _Scale:
    """The columns of a chart: `width` of them over `span` values of x from `start` on."""

    start: int
    span: int
    width: int

    def column(self, x: int) -> int:
        return (x - self.start) * self.width // self.span

    def edge(self, column: int) -> int:
        """The smallest x of a column."""
        return self.start - (-column * self.span // self.width)


class _Cut(NamedTuple):
    """Which of the points of a line, by their indexes, lie in a column."""

    column: int
    start: int
    end: int


# Runs that are compared log the same steps.
@lru_cache(maxsize=64)
def _cuts(packed_xs: bytes, scale: _Scale) -> Sequence[_Cut] | None:
    """Those of a line's points that lie in the range; None when its xs are not in order."""
    xs = array("q", packed_xs).tolist()
    if sorted(xs) != xs:
        return None
    cuts = []
    at, last = bisect_left(xs, scale.start), bisect_left(xs, scale.start + scale.span)
    while at < last:
        column = scale.column(xs[at])
        following = bisect_left(xs, scale.edge(column + 1), at, last)
        cuts.append(_Cut(column, at, following))
        at = following
    return cuts


class _Grid:
    """The columns of one chart while they are filled."""

    def __init__(self, scale: _Scale) -> None:
        self._scale = scale
        self._used = bytearray(scale.width)
        self._lows: list[float | None] = [None] * scale.width
        self._highs: list[float | None] = [None] * scale.width
        self.count = 0

    def widen(self, column: int, low: float | None, high: float | None) -> None:
        self._used[column] = 1
        if low is None or high is None:
            return
        old_low, old_high = self._lows[column], self._highs[column]
        if old_low is None or low < old_low:
            self._lows[column] = low
        if old_high is None or high > old_high:
            self._highs[column] = high

    def add(self, line: Line) -> None:
        """Take the points that lie in the range."""
        if not line.xs:
            return
        values = line.values.tolist()
        cuts = _cuts(line.xs.tobytes(), self._scale)
        if cuts is not None:
            self._add_ordered(cuts, values)
            return
        xs = line.xs.tolist()
        if self._scale.column(max(xs)) - self._scale.column(min(xs)) < _FEW_COLUMNS:
            self._add_jumbled(xs, values)
            return
        order = sorted(range(len(xs)), key=xs.__getitem__)
        in_order = array("q", [xs[index] for index in order])
        cuts = _cuts(in_order.tobytes(), self._scale)
        assert cuts is not None
        self._add_ordered(cuts, [values[index] for index in order])

    def _add_ordered(self, cuts: Sequence[_Cut], values: Sequence[float]) -> None:
        if not cuts:
            return
        self.count += cuts[-1].end - cuts[0].start
        is_plain = not _may_lack_order(values)
        for column, start, end in cuts:
            inside = values[start:end]
            if is_plain:
                self.widen(column, min(inside), max(inside))
            else:
                self.widen(column, *_extremes(inside))

    def _add_jumbled(self, xs: Sequence[int], values: Sequence[float]) -> None:
        """Points of a few columns: one look for each is quicker than to put them in order."""
        first = max(self._scale.column(min(xs)), 0)
        last = min(self._scale.column(max(xs)), self._scale.width - 1)
        for column in range(first, last + 1):
            start, end = self._scale.edge(column), self._scale.edge(column + 1)
            inside = list(compress(values, [start <= x < end for x in xs]))
            if inside:
                self.count += len(inside)
                self.widen(column, *_extremes(inside))

    def columns(self) -> list[Column]:
        """Those in which there is something."""
        return [
            Column(
                self._scale.edge(number),
                NAN if low is None else low,
                NAN if high is None else high,
            )
            for number, (used, low, high) in enumerate(
                zip(self._used, self._lows, self._highs, strict=True)
            )
            if used
        ]


def _extremes(values: Sequence[float]) -> tuple[float | None, float | None]:
    if _may_lack_order(values):
        values = [value for value in values if value == value]
    return (min(values), max(values)) if values else (None, None)


def _may_lack_order(values: Sequence[float]) -> bool:
    """Whether there is a NaN among them, or infinities of both signs."""
    total = sum(values)
    return total != total


def _x(pair: tuple[int, float]) -> int:
    return pair[0]
