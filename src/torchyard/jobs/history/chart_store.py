"""Read metrics by range: bounds of blocks, blocks as arrays, what is known of every key.

Owns: SQL that reads packed blocks without making an object for each point.
Leaves: writing and the tables to history_store.py.
Always: blocks and tail belong together, though another writer may turn one into the other between
two statements: the row that counts the blocks is read first, and no block beyond it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from sqlalchemy import BindParameter, ColumnElement, Connection, Select, bindparam, func, select

from torchyard.jobs.history import charts, metric_blocks, stepless_points
from torchyard.jobs.history.charts import Chart, Line, Span
from torchyard.jobs.history.history_store import is_sampled, metric_blocks_table, metrics
from torchyard.shared.record_rules import NAN

By = Literal["step", "time"]
Sampled = Literal["hidden", "too", "only"]
"""Whether the metrics that workers sample are among those that were logged."""

# Of up to 12 KB each.
_NUMBERS_A_QUERY = 200


@dataclass(frozen=True)
class Window:
    """From `start` to `end` along an axis: steps, or times in ms since 1970; None is open."""

    by: By = "step"
    start: int | None = None
    end: int | None = None

    @property
    def open(self) -> bool:
        return self.start is None and self.end is None


class Points(NamedTuple):
    """Points as arrays of one length, in order of arrival; timestamps in ms since 1970."""

    timestamps: array[int]
    steps: array[int]
    values: array[float]


class Head(NamedTuple):
    """How many blocks a key has, and the points that are in none yet."""

    blocks: int
    tail: Points


@dataclass(frozen=True)
class Summary:
    """What is known of one key without reading its points; no extremes when all are NaN."""

    key: str
    count: int
    step: int
    timestamp: int
    value: float
    low: float | None
    high: float | None


def charts_of(
    connection: Connection, job_ids: Sequence[int], key: str, window: Window, width: int
) -> dict[int, Chart]:
    """By job, the key in at most `width` columns; without the jobs that have no such key."""
    heads = _heads(connection, job_ids, key)
    spans_query = _spans_query(key, window)
    return {
        job_id: charts.reduce(
            _spans(connection, spans_query, job_id, head.blocks),
            partial(_lines, connection, job_id, key, window.by),
            _line(head.tail, window.by),
            width,
            window.start,
            window.end,
        )
        for job_id, head in heads.items()
    }


def head(connection: Connection, job_id: int, key: str) -> Head | None:
    """None when the job has no such key."""
    return _heads(connection, [job_id], key).get(job_id)


# A chart of many jobs asks for the blocks of each: built once, as building takes longer.
_JOBS: BindParameter[int] = bindparam("jobs", expanding=True)
_NUMBERS: BindParameter[int] = bindparam("numbers", expanding=True)
_HEADS = select(metrics.c.job_id, metrics.c.blocks, metrics.c.points, metrics.c.tail).where(
    metrics.c.job_id.in_(_JOBS), metrics.c.key == bindparam("of_key")
)
_DATA = (
    select(metric_blocks_table.c.data)
    .where(
        metric_blocks_table.c.job_id == bindparam("of_job"),
        metric_blocks_table.c.key == bindparam("of_key"),
        metric_blocks_table.c.number.in_(_NUMBERS),
    )
    .order_by(metric_blocks_table.c.number)
)


def _heads(connection: Connection, job_ids: Sequence[int], key: str) -> dict[int, Head]:
    heads = {}
    for row in connection.execute(_HEADS, {"jobs": job_ids, "of_key": key}):
        timestamps, steps, values = metric_blocks.arrays(row.tail)
        steps = stepless_points.number_steps(steps, row.points - len(steps))
        heads[row.job_id] = Head(row.blocks, Points(timestamps, steps, values))
    return heads


def _spans_query(key: str, window: Window) -> Select[Any]:
    """The blocks of a job to be named, as far as they reach into the window."""
    table = metric_blocks_table.c
    return (
        select(table.number, table.count, *_axis(window.by), table.min_value, table.max_value)
        .where(
            table.job_id == bindparam("of_job"),
            table.number < bindparam("blocks"),
            *_conditions(key, window),
        )
        .order_by(table.number)
    )


def _spans(connection: Connection, query: Select[Any], job_id: int, blocks: int) -> list[Span]:
    if not blocks:
        return []
    rows = connection.execute(query, {"of_job": job_id, "blocks": blocks})
    return [Span(*row) for row in rows]


def _lines(
    connection: Connection, job_id: int, key: str, by: By, numbers: Sequence[int]
) -> Iterator[Line]:
    """The blocks of these numbers, a piece at a time."""
    for start in range(0, len(numbers), _NUMBERS_A_QUERY):
        some = numbers[start : start + _NUMBERS_A_QUERY]
        query = {"of_job": job_id, "of_key": key, "numbers": some}
        for (data,) in connection.execute(_DATA, query).all():
            yield _line(Points(*metric_blocks.arrays(data)), by)


def _line(points: Points, by: By) -> Line:
    return Line(points.steps if by == "step" else points.timestamps, points.values)


def counts(connection: Connection, job_id: int, key: str) -> list[tuple[int, int]]:
    """(number, count) of every block, by number."""
    table = metric_blocks_table.c
    query = (
        select(table.number, table.count)
        .where(table.job_id == job_id, table.key == key)
        .order_by(table.number)
    )
    return [(number, count) for number, count in connection.execute(query)]


def blocks(
    connection: Connection,
    job_id: int,
    key: str,
    window: Window,
    numbers: range,
    limit: int,
) -> list[tuple[int, Points]]:
    """Up to `limit` of the blocks with these numbers that reach into the window, by number."""
    table = metric_blocks_table.c
    query = (
        select(table.number, table.data)
        .where(
            table.job_id == job_id,
            *_conditions(key, window),
            table.number >= numbers.start,
            table.number < numbers.stop,
        )
        .order_by(table.number)
        .limit(limit)
    )
    return [
        (number, Points(*metric_blocks.arrays(data))) for number, data in connection.execute(query)
    ]


def summaries(connection: Connection, job_id: int, sampled: Sampled = "hidden") -> list[Summary]:
    """Of every key, sorted."""
    table = metric_blocks_table.c
    rows = connection.execute(
        select(metrics)
        .where(metrics.c.job_id == job_id, *_sampled(sampled))
        .order_by(metrics.c.key)
    ).all()
    extremes = {
        key: (low, high)
        for key, low, high in connection.execute(
            select(table.key, func.min(table.min_value), func.max(table.max_value))
            .where(table.job_id == job_id)
            .group_by(table.key)
        )
    }
    summaries = []
    for row in rows:
        tail = metric_blocks.arrays(row.tail)[2]
        numbers = [value for value in tail if value == value]
        numbers += [value for value in extremes.get(row.key, ()) if value is not None]
        summaries.append(
            Summary(
                row.key,
                row.points,
                row.latest_step,
                row.latest_timestamp,
                NAN if row.latest_value is None else row.latest_value,
                min(numbers, default=None),
                max(numbers, default=None),
            )
        )
    return summaries


def newest(connection: Connection, job_id: int) -> dict[str, tuple[int, int, int, float]]:
    """(count, step, timestamp, value) of every key: how many points, and the latest one."""
    rows = connection.execute(
        select(
            metrics.c.key,
            metrics.c.points,
            metrics.c.latest_step,
            metrics.c.latest_timestamp,
            metrics.c.latest_value,
        ).where(metrics.c.job_id == job_id)
    )
    return {
        key: (points, step, timestamp, NAN if value is None else value)
        for key, points, step, timestamp, value in rows
    }


def keys(connection: Connection, job_id: int, sampled: Sampled = "hidden") -> list[str]:
    rows = connection.execute(
        select(metrics.c.key)
        .where(metrics.c.job_id == job_id, *_sampled(sampled))
        .order_by(metrics.c.key)
    )
    return [row.key for row in rows]


def point_counts(connection: Connection, job_ids: Collection[int]) -> dict[int, int]:
    """How many points each of these jobs has, as far as it has any."""
    rows = connection.execute(
        select(metrics.c.job_id, func.sum(metrics.c.points))
        .where(metrics.c.job_id.in_(job_ids))
        .group_by(metrics.c.job_id)
    )
    return {job_id: int(points) for job_id, points in rows}


def _sampled(sampled: Sampled) -> list[ColumnElement[bool]]:
    if sampled == "too":
        return []
    return [is_sampled() if sampled == "only" else ~is_sampled()]


def _axis(by: By) -> tuple[Any, Any]:
    table = metric_blocks_table.c
    if by == "step":
        return table.min_step, table.max_step
    return table.min_timestamp, table.max_timestamp


def _conditions(key: str, window: Window) -> list[ColumnElement[bool]]:
    table = metric_blocks_table.c
    first, last = _axis(window.by)
    conditions = [table.key == key]
    if window.start is not None:
        conditions.append(last >= window.start)
    if window.end is not None:
        conditions.append(first <= window.end)
    return conditions
