"""The table of jobs that are deleted: first a mark, in the end a tombstone.

Owns: its SQL, numbers of jobs that are not given twice.
Leaves: what else goes with a job to cleanup/removal.py.
Always: a tombstone stays, so that nothing of an old job is ever taken for a new one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Select,
    String,
    Table,
    delete,
    func,
    select,
    update,
)

from torchyard.base.db import Instant, insert_new, metadata

removed_jobs = Table(
    "removed_jobs",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("workspace", String(64), nullable=False),
    Column("name", String(256), nullable=False),
    Column("asked_at", Instant, nullable=False),
    Column("asked_by", String(128), nullable=False),
    Column("done_at", Instant, index=True),
)


@dataclass(frozen=True)
class Mark:
    """A job that somebody wants deleted; `asked_by` is `retention` for the workspace's setting."""

    job_id: int
    workspace: str
    name: str
    asked_at: datetime
    asked_by: str
    done_at: datetime | None = None


def mark(connection: Connection, marks: Sequence[Mark]) -> None:
    """Those that are marked already stay as they are."""
    insert_new(connection, removed_jobs, [dict(vars(mark)) for mark in marks])


def take_back(connection: Connection, job_id: int) -> None:
    connection.execute(delete(removed_jobs).where(removed_jobs.c.job_id == job_id))


def finish(connection: Connection, job_id: int, now: datetime) -> None:
    connection.execute(
        update(removed_jobs).where(removed_jobs.c.job_id == job_id).values(done_at=now)
    )


def pending(connection: Connection) -> list[Mark]:
    """Marked, and not gone yet; oldest first."""
    rows = connection.execute(
        select(removed_jobs)
        .where(removed_jobs.c.done_at.is_(None))
        .order_by(removed_jobs.c.asked_at, removed_jobs.c.job_id)
    )
    return [Mark(**row._mapping) for row in rows]


def any_pending(connection: Connection) -> bool:
    query = select(removed_jobs.c.job_id).where(removed_jobs.c.done_at.is_(None)).limit(1)
    return connection.execute(query).scalar() is not None


def numbered(connection: Connection, jobs: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """A new job's values, with its number where the database would give an old one again.

    SQLite counts on from the largest number there is, not from the largest there ever was.
    """
    if connection.dialect.name != "sqlite" or "id" in values:
        return dict(values)
    return {**values, "id": next_number(connection, jobs)}


def next_number(connection: Connection, jobs: Table) -> int:
    """The number of the next job in SQLite, in a transaction that writes."""
    dead = connection.execute(_LAST_REMOVED).scalar() or 0
    return 1 + max(dead, connection.execute(_last_of(jobs)).scalar() or 0)


_LAST_REMOVED = select(func.max(removed_jobs.c.job_id))


@cache
def _last_of(jobs: Table) -> Select[Any]:
    return select(func.max(jobs.c.id))
