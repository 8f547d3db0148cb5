"""The tables of run history: metrics in packed blocks, parameters, how far workers have come.

Owns: SQL of run history, storing equal points once.
Leaves: what a valid record is to history_records.py.
Always: the points of a key are its blocks by number, then its tail, in order of arrival.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    Row,
    String,
    Table,
    Text,
    bindparam,
    delete,
    false,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)

from torchyard.base.db import metadata
from torchyard.jobs.history import metric_blocks, shared_keys, stepless_points
from torchyard.jobs.history.metric_blocks import POINT_BYTES, Point
from torchyard.jobs.records.attempt_store import attempts
from torchyard.shared.record_rules import NAN

# Databases bound the number of parameters in one statement.
_KEYS_A_QUERY = 400

# Databases bound the number of parameters in one statement.
_IDS_A_QUERY = 500

metrics = Table(
    "metrics",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", String(250), primary_key=True),
    Column("points", BigInteger, nullable=False),
    Column("blocks", Integer, nullable=False),
    Column("latest_step", BigInteger, nullable=False),
    Column("latest_timestamp", BigInteger, nullable=False),
    Column("latest_value", Double),  # null is NaN, which SQLite does not keep
    Column("max_step", BigInteger, nullable=False),
    Column("max_timestamp", BigInteger, nullable=False),
    Column("tail", LargeBinary, nullable=False),
    # Whether SDK v1's `run.log` owns the key, or MLflow; null is the next of them that logs it.
    Column("by_run_log", Boolean),
    # Whether the worker sampled the points; no script has logged the key.
    Column("sampled", Boolean, nullable=False, server_default=false()),
    # The runs in the order of a metric.
    Index("ix_metrics_best", "key", "latest_value", "job_id"),
)

metric_blocks_table = Table(
    "metric_blocks",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", String(250), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("count", Integer, nullable=False),
    Column("min_timestamp", BigInteger, nullable=False),
    Column("max_timestamp", BigInteger, nullable=False),
    Column("min_step", BigInteger, nullable=False),
    Column("max_step", BigInteger, nullable=False),
    Column("min_value", Double),  # null when all values are NaN
    Column("max_value", Double),
    Column("data", LargeBinary, nullable=False),
)

params = Table(
    "params",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", String(250), primary_key=True),
    Column("value", Text, nullable=False),
)
PARAM_START = func.substr(params.c.value, literal_column("1"), literal_column("64"))
"""As much of a parameter's value as an index holds."""
Index("ix_params_values", params.c.key, PARAM_START, params.c.job_id)
_NUMBERS = {
    # The inner `case` because `json_type` fails where the text is not JSON.
    "sqlite": "CASE WHEN (CASE WHEN (json_valid(params.value) = 1) THEN json_type(params.value) "
    "END IN ('integer', 'real')) THEN CAST(params.value AS DOUBLE) END",
    "postgresql": r"CASE WHEN "
    r"(params.value ~ '^-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$') "
    r"THEN CAST(params.value AS DOUBLE PRECISION) END",
}
PARAM_NUMBER = {name: literal_column(written, Double) for name, written in _NUMBERS.items()}
"""The number that a parameter's value is, else null; by dialect, as an index has it."""
for _dialect, _written in _NUMBERS.items():
    _number = text(f"({_written.replace('params.', '')})")
    Index("ix_params_numbers", params.c.key, _number, params.c.job_id).ddl_if(dialect=_dialect)

history_cursors = Table(
    "history_cursors",
    metadata,
    Column("attempt_id", String(64), primary_key=True),
    Column("node", Integer, primary_key=True, autoincrement=False),
    Column("next", BigInteger, nullable=False),
)


# Built once: SQLAlchemy takes longer to build them than to run them.
_OF_KEYS = (
    select(metrics)
    .where(
        metrics.c.job_id == bindparam("the_job"),
        metrics.c.key.in_(bindparam("the_keys", expanding=True)),
    )
    .with_for_update()
)
_UPDATE = update(metrics).where(
    metrics.c.job_id == bindparam("the_job"), metrics.c.key == bindparam("the_key")
)
_OF_NODE = (history_cursors.c.attempt_id == bindparam("of_attempt")) & (
    history_cursors.c.node == bindparam("of_node")
)
_CURSOR = select(history_cursors.c.next).where(_OF_NODE).with_for_update()
_SET_CURSOR = update(history_cursors).where(_OF_NODE).values(next=bindparam("following"))


class Latest(NamedTuple):
    """The latest point of one key of one job."""

    job_id: int
    key: str
    timestamp: int
    step: int
    value: float


def add_points(
    connection: Connection,
    job_id: int,
    points_by_key: Mapping[str, Sequence[Point]],
    counted: bool = False,
    by_run_log: bool | None = None,
) -> bool:
    """Append what is not there yet of what a script logs; points made by `metric_blocks.point`.

    Args:
        counted: the sender counts what it sends, so that nothing comes twice.
        by_run_log: whether SDK v1's `run.log` logged them, or MLflow; None adds them to their keys
            whoever owns these.

    Returns:
        Whether there is a key now that both log, which only one had logged.
    """
    rows = _metrics_of(connection, job_id, list(points_by_key))
    for key in [key for key, row in rows.items() if row.sampled]:
        if _rename(connection, job_id, key, shared_keys.of_worker(key)):
            del rows[key]
    of_other = {key for key, row in rows.items() if {row.by_run_log, by_run_log} == {True, False}}
    own: dict[str, Sequence[Point]] = {}
    apart: dict[str, list[Point]] = {}
    is_shared = False
    for key, points in points_by_key.items():
        name = shared_keys.of_run_log(key)
        if key in of_other and by_run_log:
            apart.setdefault(name, []).extend(points)
            continue
        own[key] = points
        if key in of_other and name not in points_by_key and _rename(connection, job_id, key, name):
            del rows[key]
            is_shared = True
    _append(connection, job_id, own, rows, counted, by_run_log)
    if apart:
        rows = _metrics_of(connection, job_id, list(apart))
        _append(connection, job_id, apart, rows, counted, None)
        is_shared = len(rows) < len(apart)
    return is_shared


def add_sampled(
    connection: Connection,
    job_id: int,
    points_by_key: Mapping[str, Sequence[Point]],
    counted: bool = False,
) -> None:
    """Append what a worker sampled, apart from what the script logs under the same key."""
    rows = _metrics_of(connection, job_id, list(points_by_key))
    of_script = {key for key, row in rows.items() if not row.sampled}
    own = {
        shared_keys.of_worker(key) if key in of_script else key: points
        for key, points in points_by_key.items()
    }
    if of_script:
        rows = _metrics_of(connection, job_id, list(own))
    _append(connection, job_id, own, rows, counted, None, sampled=True)


def _rename(connection: Connection, job_id: int, key: str, name: str) -> bool:
    """Rename a key, unless the name is in use."""
    if _metrics_of(connection, job_id, [name]):
        return False
    for table in (metrics, metric_blocks_table):
        of_key = (table.c.job_id == job_id) & (table.c.key == key)
        connection.execute(update(table).where(of_key).values(key=name))
    return True


def _append(
    connection: Connection,
    job_id: int,
    points_by_key: Mapping[str, Sequence[Point]],
    rows: Mapping[str, Row[Any]],
    counted: bool,
    by_run_log: bool | None,
    sampled: bool = False,
) -> None:
    inserts: list[dict[str, Any]] = []
    updates: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] = []
    for key, points in points_by_key.items():
        row = rows.get(key)
        owner = by_run_log if row is None or by_run_log is not None else row.by_run_log
        appended = None if row is None else _appended(row, points)
        if appended is not None:
            updates.append({"the_job": job_id, "the_key": key, "by_run_log": owner, **appended})
            continue
        tail = [] if row is None else metric_blocks.unpack(row.tail)
        fresh = list(dict.fromkeys(points))
        if row is not None:
            fresh = _unseen(connection, row, tail, fresh)
            if not counted:
                fresh = _unsettled(connection, row, tail, fresh)
        if not fresh:
            continue
        laid = stepless_points.add(tail, fresh, 0 if row is None else row.points - len(tail))
        values = {"by_run_log": owner, **_grown(row, len(fresh), laid.numbered)}
        for piece in metric_blocks.cut(laid.finished):
            blocks.append(_block(job_id, key, values["blocks"], piece))
            values["blocks"] += 1
        values["tail"] = metric_blocks.pack(laid.tail)
        if row is None:
            inserts.append({"job_id": job_id, "key": key, "sampled": sampled, **values})
        else:
            updates.append({"the_job": job_id, "the_key": key, **values})
    if blocks:
        connection.execute(insert(metric_blocks_table), blocks)
    if inserts:
        connection.execute(insert(metrics), inserts)
    if updates:
        connection.execute(_UPDATE, updates)


def _appended(row: Row[Any], points: Sequence[Point]) -> dict[str, Any] | None:
    """The row with points added that come after all it has, each in a later step; None for others.

    Most points do, and then the last is the latest and the tail need not be read.
    """
    step = row.max_step
    for point in points:
        if point.step <= step or stepless_points.waits(point):
            return None
        step = point.step
    oldest = metric_blocks.first_step(row.tail)
    if oldest is not None and stepless_points.is_moment(oldest):
        return None
    if len(row.tail) // POINT_BYTES + len(points) >= metric_blocks.TAIL_POINTS:
        return None
    newest = points[-1]
    return {
        "points": row.points + len(points),
        "blocks": row.blocks,
        "latest_step": newest.step,
        "latest_timestamp": newest.timestamp,
        "latest_value": None if newest.value != newest.value else newest.value,
        "max_step": newest.step,
        "max_timestamp": max(row.max_timestamp, *[point.timestamp for point in points]),
        "tail": metric_blocks.joined(row.tail, metric_blocks.pack(points)),
    }


def _metrics_of(connection: Connection, job_id: int, keys: Sequence[str]) -> dict[str, Row[Any]]:
    """The rows of these keys of a job; those that are not there yet are left out."""
    rows = {}
    for start in range(0, len(keys), _KEYS_A_QUERY):
        some = keys[start : start + _KEYS_A_QUERY]
        result = connection.execute(_OF_KEYS, {"the_job": job_id, "the_keys": some})
        rows.update({row.key: row for row in result})
    return rows


def _unseen(
    connection: Connection, row: Row[Any], tail: list[Point], points: list[Point]
) -> list[Point]:
    # A point later or further than all before it, which is the common case, needs no look.
    suspects = [
        point
        for point in points
        if point.timestamp <= row.max_timestamp and point.step <= row.max_step
    ]
    if not suspects:
        return points
    seen = set(tail)
    box = metric_blocks.bounds(suspects)
    table = metric_blocks_table.c
    query = select(table.data).where(
        table.job_id == row.job_id,
        table.key == row.key,
        table.min_timestamp <= box.max_timestamp,
        table.max_timestamp >= box.min_timestamp,
        table.min_step <= box.max_step,
        table.max_step >= box.min_step,
    )
    for (data,) in connection.execute(query):
        seen.update(metric_blocks.unpack(data))
    return [point for point in points if point not in seen]


def _unsettled(
    connection: Connection, row: Row[Any], tail: list[Point], points: list[Point]
) -> list[Point]:
    """Without points that have got their numbers since they were sent first."""
    oldest = tail[0].step if tail and stepless_points.waits(tail[0]) else None
    late = [
        point
        for point in points
        if point.timestamp <= row.max_timestamp
        and stepless_points.waits(point)
        and (oldest is None or point.step < oldest)
    ]
    if not late:
        return points
    table = metric_blocks_table.c
    query = select(table.data).where(
        table.job_id == row.job_id,
        table.key == row.key,
        table.min_timestamp <= max(point.timestamp for point in late),
        table.max_timestamp >= min(point.timestamp for point in late),
    )
    settled = {
        (point.timestamp, point.value)
        for (data,) in connection.execute(query)
        for point in metric_blocks.unpack(data)
    }
    removed = {point for point in late if (point.timestamp, point.value) in settled}
    return [point for point in points if point not in removed]


def _grown(row: Row[Any] | None, count: int, fresh: list[Point]) -> dict[str, Any]:
    newest = metric_blocks.latest(fresh)
    box = metric_blocks.bounds(fresh)
    points, blocks, max_step, max_timestamp = 0, 0, box.max_step, box.max_timestamp
    if row is not None:
        points, blocks = row.points, row.blocks
        max_step, max_timestamp = max(max_step, row.max_step), max(max_timestamp, row.max_timestamp)
        before = Point(row.latest_timestamp, row.latest_step, _value(row.latest_value))
        newest = metric_blocks.latest((before, newest))
    return {
        "points": points + count,
        "blocks": blocks,
        "latest_step": newest.step,
        "latest_timestamp": newest.timestamp,
        "latest_value": None if newest.value != newest.value else newest.value,
        "max_step": max_step,
        "max_timestamp": max_timestamp,
    }


def _block(job_id: int, key: str, number: int, points: Sequence[Point]) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "key": key,
        "number": number,
        "count": len(points),
        **vars(metric_blocks.bounds(points)),
        "data": metric_blocks.pack(points),
    }


def points_of(
    connection: Connection, job_id: int, key: str, offset: int, limit: int | None
) -> list[Point]:
    """`limit` points from `offset` on, in order of arrival."""
    return list(islice(_points_from(connection, job_id, key, offset, limit), limit))


def _points_from(
    connection: Connection, job_id: int, key: str, offset: int, limit: int | None
) -> Iterator[Point]:
    """From `offset` on; those beyond `limit` may be missing."""
    table = metric_blocks_table.c
    series = (table.job_id == job_id) & (table.key == key)
    query = select(table.data).where(series).order_by(table.number)
    skip = offset
    if offset or limit is not None:
        # PostgreSQL's driver fetches all that a query finds, and a page is a small part of it.
        rows = connection.execute(select(table.count).where(series).order_by(table.number)).all()
        ends = list(accumulate(count for (count,) in rows))
        first = bisect_right(ends, offset)
        skip -= ends[first - 1] if first else 0
        query = query.where(table.number >= first)
        if limit is not None:
            query = query.where(table.number <= bisect_left(ends, offset + limit))
    for (data,) in connection.execute(query):
        points = metric_blocks.unpack(data)
        yield from points[skip:] if skip else points
        skip = 0
    row = connection.execute(
        select(metrics.c.points, metrics.c.tail).where(
            metrics.c.job_id == job_id, metrics.c.key == key
        )
    ).one_or_none()
    if row is not None and skip * POINT_BYTES < len(row.tail):
        before = row.points - len(row.tail) // POINT_BYTES
        yield from stepless_points.number_tail(metric_blocks.unpack(row.tail), before)[skip:]


def counts_of(connection: Connection, job_ids: Sequence[int], key: str) -> dict[int, int]:
    """How many points of one key each job has; without those that have none."""
    counts: dict[int, int] = {}
    for start in range(0, len(job_ids), _IDS_A_QUERY):
        rows = connection.execute(
            select(metrics.c.job_id, metrics.c.points).where(
                metrics.c.key == key, metrics.c.job_id.in_(job_ids[start : start + _IDS_A_QUERY])
            )
        )
        counts.update({job_id: int(points) for job_id, points in rows})
    return counts


def extremes_of(connection: Connection, job_id: int, key: str) -> tuple[float, float] | None:
    """The lowest and the highest value of one key; None without any number."""
    values = [point.value for point in points_of(connection, job_id, key, 0, None)]
    numbers = [value for value in values if math.isfinite(value)]
    return (min(numbers), max(numbers)) if numbers else None


def is_sampled() -> ColumnElement[bool]:
    """The metrics that workers sample, which no script has logged."""
    return metrics.c.sampled.is_(True)


# Asked for whenever a job is shown: built once.
_OF_JOBS: BindParameter[int] = bindparam("jobs", expanding=True)
_LATEST = (
    select(
        metrics.c.job_id,
        metrics.c.key,
        metrics.c.latest_timestamp,
        metrics.c.latest_step,
        metrics.c.latest_value,
    )
    .where(metrics.c.job_id.in_(_OF_JOBS))
    .order_by(metrics.c.job_id, metrics.c.key)
)
_LATEST_LOGGED = _LATEST.where(~is_sampled())
_PARAMS = (
    select(params).where(params.c.job_id.in_(_OF_JOBS)).order_by(params.c.job_id, params.c.key)
)


def latest_of(
    connection: Connection,
    job_ids: Collection[int],
    keys: Collection[str] | None = None,
    sampled: bool = False,
) -> list[Latest]:
    """Of these keys, or of every key, of these jobs, sorted by job and key.

    Args:
        sampled: with those that workers sample, which are left out unless they are named.
    """
    query = _LATEST if sampled else _LATEST_LOGGED
    if keys is not None:
        query = _LATEST.where(metrics.c.key.in_(keys))
    return [
        Latest(job_id, key, timestamp, step, _value(value))
        for job_id, key, timestamp, step, value in connection.execute(query, {"jobs": job_ids})
    ]


_VALUES = _LATEST_LOGGED.with_only_columns(metrics.c.job_id, metrics.c.key, metrics.c.latest_value)


def values_of(connection: Connection, job_ids: Sequence[int]) -> dict[int, dict[str, float]]:
    """By job, the last value of every key that it logged."""
    values: dict[int, dict[str, float]] = {job_id: {} for job_id in job_ids}
    # All rows at once: there may be a hundred thousand, and one by one they take twice as long.
    for job_id, key, value in connection.execute(_VALUES, {"jobs": job_ids}).all():
        values[job_id][key] = _value(value)
    return values


def params_of(
    connection: Connection, job_ids: Collection[int], keys: Collection[str] | None = None
) -> list[tuple[int, str, str]]:
    """(job, key, value) of these keys, or of every key, sorted by job and key."""
    query = _PARAMS
    if keys is not None:
        query = query.where(params.c.key.in_(keys))
    rows = connection.execute(query, {"jobs": job_ids})
    return [(row.job_id, row.key, row.value) for row in rows]


def add_params(connection: Connection, job_id: int, values: Mapping[str, str]) -> None:
    rows = [{"job_id": job_id, "key": key, "value": value} for key, value in values.items()]
    if rows:
        connection.execute(insert(params), rows)


def cursor(connection: Connection, attempt_id: str, node: int) -> int | None:
    """The sequence number expected next, kept for this transaction; None before the first.

    A worker whose request took too long sends it again, and both must not count from one number.
    """
    key = {"of_attempt": attempt_id, "of_node": node}
    number: int | None = connection.execute(_CURSOR, key).scalar()
    return number


def received(connection: Connection, attempt_id: str, job_id: int) -> int:
    """How many records of an attempt have come, of all its nodes, that workers did not sample.

    Good for comparison with another time: it is less by what earlier attempts had sampled.
    """
    query = select(func.sum(history_cursors.c.next)).where(
        history_cursors.c.attempt_id == attempt_id
    )
    sampled = select(func.sum(metrics.c.points)).where(metrics.c.job_id == job_id, is_sampled())
    count = connection.execute(query).scalar() or 0
    return int(count) - int(connection.execute(sampled).scalar() or 0)


def set_cursor(
    connection: Connection, attempt_id: str, node: int, before: int | None, following: int
) -> None:
    if before is None:
        row = {"attempt_id": attempt_id, "node": node, "next": following}
        connection.execute(insert(history_cursors), row)
        return
    values = {"of_attempt": attempt_id, "of_node": node, "following": following}
    connection.execute(_SET_CURSOR, values)


def keys_since(connection: Connection, job_id: int, after: int) -> list[str]:
    """The script's keys with points later than `after`, in ms since 1970."""
    query = select(metrics.c.key).where(
        metrics.c.job_id == job_id, metrics.c.max_timestamp > after, ~is_sampled()
    )
    return list(connection.execute(query.order_by(metrics.c.key)).scalars())


def steps_since(connection: Connection, job_id: int, key: str, after: int) -> set[int]:
    """The steps of a key's points that are later than `after`, in ms since 1970."""
    table = metric_blocks_table.c
    query = select(table.data).where(
        table.job_id == job_id, table.key == key, table.max_timestamp > after
    )
    points = [
        point for (data,) in connection.execute(query) for point in metric_blocks.unpack(data)
    ]
    row = _metrics_of(connection, job_id, [key]).get(key)
    if row is not None:
        points += stepless_points.number_tail(metric_blocks.unpack(row.tail), _in_blocks(row))
    return {point.step for point in points if point.timestamp > after}


def take_points(
    connection: Connection, job_id: int, key: str, after: int, until: int
) -> list[Point]:
    """Take a key's points between two times, in ms since 1970, out of it.

    Returns:
        Those later than `after` and not later than `until`, in order of arrival.
    """
    row = _metrics_of(connection, job_id, [key]).get(key)
    if row is None:
        return []
    table = metric_blocks_table
    series = (table.c.job_id == job_id) & (table.c.key == key)
    first = connection.execute(
        select(func.min(table.c.number)).where(series, table.c.max_timestamp > after)
    ).scalar()
    first = row.blocks if first is None else first
    query = select(table.c.data).where(series, table.c.number >= first).order_by(table.c.number)
    points = [
        point for (data,) in connection.execute(query) for point in metric_blocks.unpack(data)
    ]
    before = _in_blocks(row) - len(points)
    points += stepless_points.number_tail(metric_blocks.unpack(row.tail), _in_blocks(row))
    taken = [point for point in points if after < point.timestamp <= until]
    if not taken:
        return []
    remaining = [point for point in points if not after < point.timestamp <= until]
    connection.execute(delete(table).where(series, table.c.number >= first))
    _lay_again(connection, row, first, before, remaining)
    return taken


def _lay_again(
    connection: Connection, row: Row[Any], first: int, before: int, points: list[Point]
) -> None:
    """Write a key's points from its block `first` on, which were deleted.

    Args:
        before: how many points the blocks before it hold.
    """
    blocks = list(metric_blocks.cut(points))
    tail = blocks.pop() if blocks and len(blocks[-1]) < metric_blocks.TAIL_POINTS else []
    if blocks:
        made = [_block(row.job_id, row.key, first + k, piece) for k, piece in enumerate(blocks)]
        connection.execute(insert(metric_blocks_table), made)
    furthest = [*_furthest(connection, row), *tail]
    if not furthest:
        series = (metrics.c.job_id == row.job_id) & (metrics.c.key == row.key)
        connection.execute(delete(metrics).where(series))
        return
    values = _grown(None, before + len(points), furthest)
    values["blocks"] = first + len(blocks)
    values["tail"] = metric_blocks.pack(tail)
    connection.execute(_UPDATE, {"the_job": row.job_id, "the_key": row.key, **values})


def _furthest(connection: Connection, row: Row[Any]) -> list[Point]:
    """The points of those blocks that hold the last step, and the last moment."""
    table = metric_blocks_table.c
    series = (table.job_id == row.job_id) & (table.key == row.key)
    step, time = connection.execute(
        select(func.max(table.max_step), func.max(table.max_timestamp)).where(series)
    ).one()
    query = select(table.data).where(
        series, (table.max_step == step) | (table.max_timestamp == time)
    )
    return [point for (data,) in connection.execute(query) for point in metric_blocks.unpack(data)]


def _in_blocks(row: Row[Any]) -> int:
    """How many of a key's points are in blocks."""
    count: int = row.points - len(row.tail) // POINT_BYTES
    return count


def drop_some_blocks(connection: Connection, job_id: int) -> bool:
    """Forget up to 500 blocks; whether there may be more."""
    table = metric_blocks_table
    some = connection.execute(
        select(table.c.key, func.min(table.c.number))
        .where(table.c.job_id == job_id)
        .group_by(table.c.key)
        .limit(1)
    ).one_or_none()
    if some is None:
        return False
    key, first = some
    connection.execute(
        delete(table).where(
            table.c.job_id == job_id, table.c.key == key, table.c.number < first + 500
        )
    )
    return True


def drop(connection: Connection, job_id: int) -> None:
    """Forget the job's history; its attempts must still be there, whose cursors go too."""
    of_job = select(attempts.c.id).where(attempts.c.job_id == job_id)
    connection.execute(delete(history_cursors).where(history_cursors.c.attempt_id.in_(of_job)))
    for table in (metric_blocks_table, metrics, params):
        connection.execute(delete(table).where(table.c.job_id == job_id))


def _value(stored: float | None) -> float:
    return NAN if stored is None else stored
