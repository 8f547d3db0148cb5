"""Read the queue from the tables of jobs and attempts.

Owns: SQL that reads the queue and the running attempts without reading specs.
Leaves: which jobs may start to queue.py.
Always: a query costs what it returns, not what waits: an index answers it row by row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, func, or_, select

from torchyard.jobs.admission.queue import MARGIN_S, SPOT_RANK
from torchyard.jobs.records.attempt_store import attempts
from torchyard.jobs.records.store import HAS_RANKS, jobs
from torchyard.jobs.records.types import Status

_QUEUED = Status.QUEUED.value


@dataclass(frozen=True)
class Line:
    """The queued jobs of one cluster that may be preempted, or those that may not."""

    workspace: str
    compute: str
    low: bool
    priority_ranks: tuple[int, ...]


@dataclass(frozen=True)
class Queued:
    """What the queue needs of a job; each of its nodes takes `gpus`."""

    id: int
    name: str
    workspace: str
    compute: str
    owner: str
    node_count: int
    priority_rank: int
    limit_s: float
    gpus: int


@dataclass(frozen=True)
class RunningAttempt:
    """An attempt that holds nodes."""

    attempt_id: str
    job_id: int
    job_name: str
    workspace: str
    compute: str
    node_count: int
    priority_rank: int
    limit_s: float
    gpus: int
    created_at: datetime
    order_reason: str
    owner: str

    @property
    def ends_by(self) -> datetime | None:
        """When it ends at the latest; None when unknown."""
        limit = timedelta(seconds=self.limit_s + MARGIN_S)
        return self.created_at + limit if self.limit_s else None


@dataclass(frozen=True)
class Filter:
    """Which jobs may pass: up to `nodes` for any, up to `most_nodes` for those with a time limit.

    No job may need more than `most_gpus` in all, unless that is None.
    """

    nodes: int
    most_nodes: int
    longest_limit_s: float = 0.0
    most_gpus: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.nodes <= 0 and (self.most_nodes <= 0 or self.longest_limit_s <= 0)


# Needed in every round: built once.
_LINES = (
    select(jobs.c.workspace, jobs.c.compute, jobs.c.priority_rank)
    .where(jobs.c.status == _QUEUED)
    .group_by(jobs.c.workspace, jobs.c.compute, jobs.c.priority_rank)
    .order_by(jobs.c.workspace, jobs.c.compute, jobs.c.priority_rank)
)


def lines(connection: Connection, low_clusters: Collection[tuple[str, str]]) -> list[Line]:
    """Every cluster's lines that are not empty; all jobs of `low_clusters` are low."""
    rows = connection.execute(_LINES)
    turns: dict[tuple[str, str, bool], list[int]] = {}
    for workspace, compute, priority_rank in rows:
        low = priority_rank >= SPOT_RANK or (workspace, compute) in low_clusters
        turns.setdefault((workspace, compute, low), []).append(priority_rank)
    return [Line(*key, tuple(ranks)) for key, ranks in turns.items()]


# The column is called `turn`.
_RANK = jobs.c.priority_rank.label("priority_rank")
_COLUMNS = (
    *(jobs.c.id, jobs.c.name, jobs.c.workspace, jobs.c.compute, jobs.c.owner),
    *(jobs.c.node_count, _RANK, jobs.c.limit_s, jobs.c.gpus),
)


_OF_RANK = (
    select(*_COLUMNS)
    .where(
        jobs.c.status == _QUEUED,
        jobs.c.workspace == bindparam("place"),
        jobs.c.compute == bindparam("cluster"),
        jobs.c.priority_rank == bindparam("rank"),
        HAS_RANKS,
        or_(jobs.c.retry_at.is_(None), jobs.c.retry_at <= bindparam("now")),
        jobs.c.id > bindparam("after"),
    )
    .order_by(jobs.c.id)
    .limit(bindparam("most"))
)


def next_in(
    connection: Connection,
    line: Line,
    now: datetime,
    after: tuple[int, int] = (-1, 0),
    only: Filter | None = None,
    without_owners: Collection[str] = (),
    limit: int = 1,
) -> list[Queued]:
    """The first jobs of a line that aren't paused, after `after` (a priority rank and id).

    All that are returned have the same rank; there may be more when fewer than `limit` are.
    """
    if only is not None and only.is_empty:
        return []
    for priority_rank in line.priority_ranks:
        if priority_rank < after[0]:
            continue
        query = _OF_RANK
        these: dict[str, Any] = {
            "place": line.workspace,
            "cluster": line.compute,
            "rank": priority_rank,
            "now": now,
            "after": after[1] if priority_rank == after[0] else 0,
            "most": limit,
        }
        if only is not None:
            query = query.where(_passes(only))
        if without_owners:
            query = query.where(jobs.c.owner.not_in(sorted(without_owners)))
        rows = connection.execute(query, these).all()
        if rows:
            return [_queued(row) for row in rows]
    return []


def _passes(only: Filter) -> ColumnElement[bool]:
    beside = jobs.c.node_count <= only.nodes
    if only.most_gpus is not None:
        beside = and_(beside, jobs.c.gpus * jobs.c.node_count <= only.most_gpus)
    if only.longest_limit_s <= 0:
        return beside
    in_time = and_(
        jobs.c.node_count <= only.most_nodes,
        jobs.c.limit_s > 0,
        jobs.c.limit_s <= only.longest_limit_s,
    )
    return or_(beside, in_time)


def _queued(row: Any) -> Queued:
    return Queued(**{**row._mapping, "limit_s": row.limit_s or 0.0})


def queued_by_id(connection: Connection, job_id: int) -> Queued:
    return _queued(connection.execute(select(*_COLUMNS).where(jobs.c.id == job_id)).one())


_RUNNING = (
    select(
        attempts.c.id.label("attempt_id"),
        attempts.c.job_id,
        attempts.c.job_name,
        attempts.c.workspace,
        jobs.c.compute,
        attempts.c.node_count,
        _RANK,
        jobs.c.limit_s,
        jobs.c.gpus,
        attempts.c.created_at,
        attempts.c.order_reason,
        jobs.c.owner,
    )
    .join(jobs, jobs.c.id == attempts.c.job_id)
    .where(attempts.c.ended_at.is_(None))
    .order_by(attempts.c.created_at, attempts.c.id)
)


def list_running(connection: Connection) -> list[RunningAttempt]:
    """Every attempt that holds nodes, earliest first."""
    rows = connection.execute(_RUNNING)
    return [RunningAttempt(**{**row._mapping, "limit_s": row.limit_s or 0.0}) for row in rows]


def in_front(connection: Connection, job: Queued, now: datetime) -> tuple[int, str]:
    """How many jobs of the same cluster come before it and aren't paused; the name of the last."""
    earlier = or_(
        jobs.c.priority_rank < job.priority_rank,
        and_(jobs.c.priority_rank == job.priority_rank, jobs.c.id < job.id),
    )
    before = (
        jobs.c.status == _QUEUED,
        jobs.c.workspace == job.workspace,
        jobs.c.compute == job.compute,
        earlier,
        or_(jobs.c.retry_at.is_(None), jobs.c.retry_at <= now),
    )
    count = connection.execute(select(func.count()).select_from(jobs).where(*before)).scalar_one()
    last = (
        select(jobs.c.name).where(*before).order_by(jobs.c.priority_rank.desc(), jobs.c.id.desc())
    )
    name = connection.execute(last.limit(1)).scalar() if count else ""
    return count, str(name)
