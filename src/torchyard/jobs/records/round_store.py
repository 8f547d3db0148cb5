"""What a round of the scheduler has to look at, and nothing else.

Owns: SQL that finds the few jobs and attempts that something is to be done for.
Leaves: what is done to scheduling/preparing.py, attempts/monitoring.py and attempts/heartbeats.py.
Always: a round over a thousand attempts that run as they should reads each of them at most once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Text, cast, exists, func, or_, select

from torchyard.jobs.records.attempt_store import attempt_nodes, attempts
from torchyard.jobs.records.store import HAS_RANKS, jobs
from torchyard.jobs.records.types import NodeState, Status
from torchyard.jobs.spec.elastic import MAX_NODES

_EXITED = NodeState.EXITED.value
_TO_PREPARE = (Status.NOT_STARTED.value, Status.PREPARING.value)

# Needed in every round: built once.
_WANTED = (
    select(jobs.c.environment_hash, func.min(jobs.c.id), func.count())
    .where(jobs.c.status.in_(_TO_PREPARE), HAS_RANKS)
    .group_by(jobs.c.environment_hash)
)
_STILL_THERE = exists().where(
    attempt_nodes.c.attempt_id == attempts.c.id, attempt_nodes.c.state != _EXITED
)
_ALL_EXITED = select(attempts.c.id).where(attempts.c.ended_at.is_(None), ~_STILL_THERE)
_ELASTIC = (
    select(jobs.c.id)
    .join(attempts, attempts.c.job_id == jobs.c.id)
    .where(attempts.c.ended_at.is_(None), attempts.c.order == "")
    .where(jobs.c.status == Status.RUNNING.value)
    .where(cast(jobs.c.properties, Text).contains(f'"{MAX_NODES}"'))
)


@dataclass(frozen=True)
class Waiting:
    """Jobs that wait for one environment: the first of them, and how many."""

    environment_hash: str
    first_id: int
    count: int


def environments_wanted(connection: Connection) -> list[Waiting]:
    """By environment, in the order of the first job that waits for each."""
    rows = connection.execute(_WANTED)
    return sorted((Waiting(*row) for row in rows), key=lambda waiting: waiting.first_id)


def to_prepare(
    connection: Connection, environment_hash: str, limit: int, status: Status | None = None
) -> list[int]:
    """Ids of jobs with that environment that are not queued yet, the earliest first."""
    statuses = _TO_PREPARE if status is None else (status.value,)
    query = (
        select(jobs.c.id)
        .where(
            jobs.c.status.in_(statuses),
            jobs.c.environment_hash == environment_hash,
            HAS_RANKS,
        )
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return list(connection.execute(query).scalars())


def all_nodes_exited(connection: Connection) -> list[str]:
    """Attempts that are open though every node of theirs has told its end."""
    return list(connection.execute(_ALL_EXITED).scalars())


def elastic(connection: Connection) -> list[int]:
    """The jobs of open attempts that nobody stops, whose number of nodes may change."""
    return list(connection.execute(_ELASTIC).scalars())


def to_listen_to(connection: Connection, seen_before: datetime, now: datetime) -> set[str]:
    """Open attempts with a node not heard of since then, or whose job is called NotResponding.

    A node that was heard of in time to come, before the clock was set back, counts as well.
    """
    is_open = attempts.c.ended_at.is_(None)
    silent = (
        select(attempts.c.id)
        .join(attempt_nodes, attempt_nodes.c.attempt_id == attempts.c.id)
        .where(is_open, attempt_nodes.c.state != _EXITED)
        .where(or_(attempt_nodes.c.seen_at <= seen_before, attempt_nodes.c.seen_at > now))
    )
    # Two questions, since one with `or` would be answered by reading every job.
    called_so = (
        select(attempts.c.id)
        .join(jobs, jobs.c.id == attempts.c.job_id)
        .where(is_open, jobs.c.status == Status.NOT_RESPONDING.value)
    )
    return {
        *connection.execute(silent).scalars(),
        *connection.execute(called_so).scalars(),
    }
