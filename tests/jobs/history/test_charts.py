"""Charts and exact history: the reduction against a naive one, blocks and tail together, files."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from array import array
from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.jobs.history import chart_store, charts, exact_points, exports, metric_blocks
from torchyard.jobs.history.chart_store import Points, Window
from torchyard.jobs.history.charts import Chart, Line, Span
from torchyard.jobs.history.history import History
from torchyard.jobs.history.history_records import metric
from torchyard.jobs.history.metric_blocks import Point

FLOATS = st.one_of(
    st.floats(-1e3, 1e3), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308])
)
# Mostly in order, as a run logs; with jumps back, as one that is resumed; at the ends of int64.
XS = st.one_of(
    st.integers(-50, 50), st.integers(0, 10**6), st.sampled_from([-(2**63), 2**63 - 1, 0])
)
POINTS = st.lists(st.tuples(XS, FLOATS), max_size=120)


def line(points: Sequence[tuple[int, float]]) -> Line:
    return Line(array("q", [x for x, _ in points]), array("d", [y for _, y in points]))


class Blocks:
    """Points in blocks of `size` and a tail, and which blocks were unpacked."""

    def __init__(self, points: Sequence[tuple[int, float]], size: int) -> None:
        complete = len(points) // size * size
        self.pieces = [points[at : at + size] for at in range(0, complete, size)]
        self.tail = line(points[complete:])
        self.spans = [self._span(number, piece) for number, piece in enumerate(self.pieces)]
        self.unpacked: list[int] = []

    def _span(self, number: int, piece: Sequence[tuple[int, float]]) -> Span:
        box = metric_blocks.bounds([metric_blocks.point(0, x, y) for x, y in piece])
        return Span(number, len(piece), box.min_step, box.max_step, box.min_value, box.max_value)

    def read(self, numbers: Sequence[int]) -> Iterable[Line]:
        self.unpacked += numbers
        return [line(self.pieces[number]) for number in numbers]

    def chart(self, width: int, start: int | None = None, end: int | None = None) -> Chart:
        return charts.reduce(self.spans, self.read, self.tail, width, start, end)


def same(left: float, right: float) -> bool:
    return left == right or (left != left and right != right)


@settings(max_examples=300, deadline=None)
@given(
    points=POINTS,
    size=st.integers(1, 40),
    width=st.integers(1, 30),
    start=st.none() | XS,
    end=st.none() | XS,
    ordered=st.booleans(),
)
def test_the_reduction_is_the_naive_one(
    points: list[tuple[int, float]],
    size: int,
    width: int,
    start: int | None,
    end: int | None,
    ordered: bool,
) -> None:
    if ordered:
        points = sorted(points, key=lambda pair: pair[0])
    chart = Blocks(points, size).chart(width, start, end)

    inside = [
        (x, y) for x, y in points if (start is None or x >= start) and (end is None or x <= end)
    ]
    assert chart.count == len(inside)
    if len(inside) <= 2 * width:
        assert chart.exact
        expected = sorted(inside, key=lambda pair: pair[0])
        assert [x for x, _ in chart.points] == [x for x, _ in expected]
        assert all(same(a[1], b[1]) for a, b in zip(chart.points, expected, strict=True))
        return
    assert not chart.exact and len(chart.columns) <= width
    edges = [column.x for column in chart.columns]
    assert edges == sorted(set(edges))
    values_by_column: list[list[float]] = [[] for _ in edges]
    for x, y in inside:
        bucket = max(number for number, edge in enumerate(edges) if edge <= x)
        values_by_column[bucket].append(y)
    for column, values in zip(chart.columns, values_by_column, strict=True):
        assert values, "a column in which there is nothing"
        numbers = [value for value in values if value == value]
        assert same(column.low, min(numbers, default=math.nan))
        assert same(column.high, max(numbers, default=math.nan))


def test_a_block_that_lies_in_one_column_is_never_unpacked() -> None:
    blocks = Blocks([(step, math.sin(step)) for step in range(10_000)], 100)
    chart = blocks.chart(30)
    assert chart.count == 10_000 and len(chart.columns) == 30
    assert len(blocks.unpacked) <= 29
    blocks.unpacked.clear()
    assert blocks.chart(20).count == 10_000 and blocks.unpacked == []


def test_one_point_none_and_a_range_beside_them() -> None:
    assert Blocks([], 4).chart(10) == Chart(0, 0, -1)
    line = Blocks([(-5, 1.5)], 4)
    assert line.chart(10) == Chart(1, -5, -5, points=[(-5, 1.5)])
    assert line.chart(10, 6, 9).count == 0
    assert line.chart(10, 9, 6).count == 0


@pytest.fixture
def history(db: Database) -> History:
    return History(db, FakeClock())


def fill(history: History, points: Sequence[Point], batch: int = 150, key: str = "k") -> None:
    for at in range(0, len(points), batch):
        some = points[at : at + batch]
        history.append(1, [metric(key, point.value, point.timestamp, point.step) for point in some])


def resumed(count: int) -> list[Point]:
    """Logged to 60 %, then again from 40 % on with other values and later times."""
    steps = [*range(count * 6 // 10), *range(count * 4 // 10, count)]
    chance = random.Random(3)
    return [
        Point(1_700_000_000_000 + 10 * index, step, chance.gauss(0, 1))
        for index, step in enumerate(steps)
    ]


def read(db: Database, window: Window, **more: int) -> list[Point]:
    return [
        Point(*row)
        for points in exact_points.pieces(db, 1, "k", window, **more)
        for row in zip(points.timestamps, points.steps, points.values, strict=True)
    ]


def chart_of(db: Database, window: Window, width: int) -> Chart:
    with db.read() as connection:
        return chart_store.charts_of(connection, [1], "k", window, width)[1]


def test_a_chart_of_stored_points_along_steps_and_time(db: Database, history: History) -> None:
    points = resumed(5000)
    fill(history, points)
    by_step = chart_of(db, Window(), 100)
    assert by_step.count == len(points) == sum(1 for _ in points)
    assert min(column.low for column in by_step.columns) == min(point.value for point in points)
    assert max(column.high for column in by_step.columns) == max(point.value for point in points)
    assert (by_step.start, by_step.end) == (0, 4999)
    zoomed = chart_of(db, Window("step", 2500, 2549), 100)
    assert zoomed.exact and zoomed.count == 100  # each step twice: before and after it was resumed
    times = [point.timestamp for point in points]
    by_time = chart_of(db, Window("time", times[1000], times[1019]), 10)
    assert by_time.points == [(point.timestamp, point.value) for point in points[1000:1020]]


def test_exact_history_by_range_offset_and_limit(db: Database, history: History) -> None:
    points = resumed(3000)
    fill(history, points)
    assert read(db, Window()) == points
    for offset, limit in ((0, 1), (127, 3), (1, 700), (2999, 10_000), (3599, 2), (9000, 5)):
        assert read(db, Window(), offset=offset, limit=limit) == points[offset : offset + limit]
    window = Window("step", 1500, 1700)
    inside = [point for point in points if 1500 <= point.step <= 1700]
    assert read(db, window) == inside
    assert read(db, window, offset=150, limit=100) == inside[150:250]
    late = [point for point in points if point.timestamp >= points[-5].timestamp]
    assert read(db, Window("time", points[-5].timestamp)) == late
    assert read(db, Window("step", None, -1)) == []
    assert list(exact_points.pieces(db, 2, "k", Window())) == []


def test_points_that_arrive_while_history_is_read_come_once(db: Database, history: History) -> None:
    points = resumed(20_000)
    fill(history, points[:17_000], 500)
    pieces = exact_points.pieces(db, 1, "k", Window())
    seen = list(next(pieces).values)
    fill(history, points[17_000:], 500)
    for piece in pieces:
        seen += piece.values
    assert seen == [point.value for point in points]


def series(*pairs: tuple[str, list[Point]]) -> Iterator[tuple[tuple[str, ...], list[Points]]]:
    for key, points in pairs:
        yield (
            (key,),
            [
                Points(
                    array("q", [point.timestamp for point in points]),
                    array("q", [point.step for point in points]),
                    array("d", [point.value for point in points]),
                )
            ],
        )


ODD = [Point(5, -1, math.nan), Point(6, 2**62, math.inf), Point(7, 0, -math.inf), Point(8, 1, 0.1)]


def test_csv_gives_back_the_same_floats_and_names() -> None:
    name = 'val/acc @5 %, "größte" -\nzwei'
    text = b"".join(exports.as_csv(series((name, ODD), ("b", [])))).decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["key", *exports.POINT_COLUMNS]
    assert [row[:3] for row in rows[1:]] == [[name, str(o.step), str(o.timestamp)] for o in ODD]
    assert [row[3] for row in rows[1:]] == ["NaN", "Infinity", "-Infinity", "0.1"]


def test_json_says_where_to_go_on() -> None:
    ((_, pieces),) = series(("k", ODD))
    body = json.loads(b"".join(exports.as_json("k", pieces, 10, 4)))
    assert body["next"] == 14 and body["points"][0] == [-1, 5, "NaN"]
    assert json.loads(b"".join(exports.as_json("k", pieces, 10, 5)))["next"] is None
    assert json.loads(b"".join(exports.as_json("k", [], 0, None)))["points"] == []


def test_parquet_gives_back_the_same_points() -> None:
    arrow = pytest.importorskip("pyarrow")
    files = pytest.importorskip("pyarrow.parquet")
    written = b"".join(exports.parquet()(series(("a", ODD), ("größe", ODD * 3)), ("key",)))
    table = files.read_table(arrow.BufferReader(written))
    assert table.column("key").to_pylist() == ["a"] * 4 + ["größe"] * 12
    assert table.column("step").to_pylist()[:4] == [point.step for point in ODD]
    assert str(table.schema.field("timestamp").type) == "timestamp[ms, tz=UTC]"
    values = table.column("value").to_pylist()
    assert all(same(a, b.value) for a, b in zip(values, ODD * 4, strict=True))


def test_summaries_have_extremes_of_blocks_and_tail(db: Database, history: History) -> None:
    points = resumed(1000)
    fill(history, points)
    fill(history, [Point(1, 1, math.nan)], key="nothing")
    fill(history, ODD, key="odd")
    with db.read() as connection:
        summaries = {summary.key: summary for summary in chart_store.summaries(connection, 1)}
    values = [point.value for point in points]
    assert (summaries["k"].low, summaries["k"].high) == (min(values), max(values))
    assert (summaries["k"].count, summaries["k"].step) == (len(points), 999)
    assert (summaries["nothing"].low, summaries["nothing"].high) == (None, None)
    assert (summaries["odd"].low, summaries["odd"].high) == (-math.inf, math.inf)
    assert metric_blocks.TAIL_POINTS < 1000


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 10**6), batch=st.integers(40, 400))
def test_stored_charts_equal_those_of_the_plain_points(
    db: Database, history: History, seed: int, batch: int
) -> None:
    chance = random.Random(seed)
    history.delete(1)
    points = [
        Point(index, chance.choice([index, index // 3, chance.randrange(900)]), chance.random())
        for index in range(900)
    ]
    fill(history, points, batch)
    start = chance.randrange(500)
    window = Window("step", start, start + chance.randrange(400))
    plain = Blocks([(point.step, point.value) for point in points], 10**6)
    stored = chart_of(db, window, 40)
    expected = plain.chart(40, window.start, window.end)
    assert (stored.count, stored.columns) == (expected.count, expected.columns)
    assert sorted(stored.points) == sorted(expected.points)
