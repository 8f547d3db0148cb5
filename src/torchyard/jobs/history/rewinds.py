"""What a resumed run logs again.

Owns: which points a run puts aside when it goes on from a checkpoint, their table, and which of
them come back.
Leaves: points in their blocks to history_store.py, who says that a run was resumed to
`torchyard.train` and to any script that sets the tag.
Always: a point is either in its series or put aside, and none is lost: when the job has ended,
those come back whose step was not logged again.

A script that loads a checkpoint sets the tag `torchyard.resumed_from` to {"step", "saved_at",
"began_at"}, times in ms since 1970. What earlier attempts logged after `saved_at` will be logged
again, so it is put aside, and the metric stays one series without doubled steps. Times decide and
not steps: a checkpoint may count batches and a metric epochs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    LargeBinary,
    String,
    Table,
    delete,
    insert,
    select,
)

from torchyard.base.db import metadata
from torchyard.base.errors import InvalidInput
from torchyard.jobs.history import history_store, metric_blocks
from torchyard.jobs.history.metric_blocks import Point
from torchyard.shared.record_rules import is_int64

TAG = "torchyard.resumed_from"

metric_rewinds = Table(
    "metric_rewinds",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("job_id", BigInteger, nullable=False, index=True),
    # Empty in the row that says that the job was resumed, of which there is one a resumption.
    Column("key", String(250), nullable=False),
    Column("after", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("points", LargeBinary, nullable=False),
)


@dataclass(frozen=True)
class Rewind:
    """A run goes on from `step`: what was logged after `after` and up to `until`, in ms since 1970,
    will be logged again.
    """

    step: int
    after: int
    until: int

    def holds(self, point: Point) -> bool:
        return self.after < point.timestamp <= self.until


def read(value: str) -> Rewind:
    """
    Raises:
        InvalidInput: the tag's value is not what the module's text says.
    """
    try:
        body = json.loads(value)
        step, after, until = (body[name] for name in ("step", "saved_at", "began_at"))
    except (ValueError, TypeError, KeyError, RecursionError):
        step = after = until = None
    if not all(type(number) is int and is_int64(number) for number in (step, after, until)):
        raise InvalidInput(
            f"tag `{TAG}` is `{value[:200]}`",
            'write {"step": 300, "saved_at": 1700000000000, "began_at": 1700000100000}: integers, '
            "times in ms since 1970",
        )
    return Rewind(step, after, until)


def add(connection: Connection, job_id: int, rewind: Rewind) -> int:
    """Put aside what the run will log again; returns how many points that are."""
    settle(connection, job_id)
    _put_aside(connection, job_id, "", rewind, [])
    count = 0
    for key in history_store.keys_since(connection, job_id, rewind.after):
        points = history_store.take_points(connection, job_id, key, rewind.after, rewind.until)
        if points:
            _put_aside(connection, job_id, key, rewind, points)
            count += len(points)
    return count


def late(
    connection: Connection, job_id: int, points_by_key: Mapping[str, Sequence[Point]]
) -> dict[str, list[Point]]:
    """Put aside those that an earlier attempt logged and only now delivers; returns the others."""
    query = select(metric_rewinds.c.after, metric_rewinds.c.until).where(
        metric_rewinds.c.job_id == job_id, metric_rewinds.c.key == ""
    )
    rewinds = [Rewind(0, after, until) for after, until in connection.execute(query)]
    remaining: dict[str, list[Point]] = {}
    for key, points in points_by_key.items():
        aside = [each for each in points if _is_in(rewinds, each)]
        if aside:
            _put_aside(connection, job_id, key, rewinds[-1], aside)
        remaining[key] = [each for each in points if each not in aside] if aside else list(points)
    return {key: points for key, points in remaining.items() if points}


def settle(connection: Connection, job_id: int) -> None:
    """Put those points back into their series whose steps were not logged again."""
    rows = connection.execute(
        select(metric_rewinds)
        .where(metric_rewinds.c.job_id == job_id)
        .order_by(metric_rewinds.c.number)
    ).all()
    if not rows:
        return
    connection.execute(delete(metric_rewinds).where(metric_rewinds.c.job_id == job_id))
    for row in rows:
        if not row.key:
            continue
        again = history_store.steps_since(connection, job_id, row.key, row.until)
        points = [point for point in metric_blocks.unpack(row.points) if point.step not in again]
        if points:
            history_store.add_points(connection, job_id, {row.key: points})


def loaded_at_ms(connection: Connection, job_id: int) -> int | None:
    """When the checkpoint was saved from which the run went on last, in ms since 1970; None if it
    never did, or has ended.
    """
    query = (
        select(metric_rewinds.c.after)
        .where(metric_rewinds.c.job_id == job_id, metric_rewinds.c.key == "")
        .order_by(metric_rewinds.c.number.desc())
        .limit(1)
    )
    return connection.execute(query).scalar()


def unsettled(connection: Connection) -> list[int]:
    """The jobs of which something is put aside."""
    return list(connection.execute(select(metric_rewinds.c.job_id).distinct()).scalars())


def drop(connection: Connection, job_id: int) -> None:
    connection.execute(delete(metric_rewinds).where(metric_rewinds.c.job_id == job_id))


def _is_in(rewinds: Sequence[Rewind], point: Point) -> bool:
    return any(rewind.holds(point) for rewind in rewinds)


def _put_aside(
    connection: Connection, job_id: int, key: str, rewind: Rewind, points: Sequence[Point]
) -> None:
    connection.execute(
        insert(metric_rewinds).values(
            job_id=job_id,
            key=key,
            after=rewind.after,
            until=rewind.until,
            points=metric_blocks.pack(points),
        )
    )
