"""The queries behind quotas, and the table of what jobs store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    String,
    Table,
    bindparam,
    func,
    or_,
    select,
)

from torchyard.base.db import insert_new, metadata
from torchyard.jobs.records.store import HAS_RANKS, jobs
from torchyard.jobs.records.types import ENDED, Status

_NUMBER = BigInteger().with_variant(Integer, "sqlite")
_NO_NODES = {Status.NOT_STARTED, Status.PREPARING, Status.QUEUED, *ENDED}
HOLDING = frozenset(status for status in Status if status not in _NO_NODES)

stored_sizes = Table(
    "stored_sizes",
    metadata,
    # Without a foreign key: its rows are deleted with the job's, in any order.
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("size_bytes", _NUMBER, nullable=False),
    Column("snapshot", String(64), nullable=False),
    Column("snapshot_bytes", _NUMBER, nullable=False),
)

# Run for each job that could start, so it is built once.
_HOLDING = (
    select(jobs.c.compute, func.count(), func.sum(jobs.c.node_count))
    .where(
        jobs.c.workspace == bindparam("place"),
        HAS_RANKS,
        jobs.c.status.in_([status.value for status in HOLDING]),
        or_(bindparam("whose") == "", jobs.c.owner == bindparam("whose")),
        or_(jobs.c.status != Status.CANCEL_REQUESTED.value, jobs.c.attempt > 0),
    )
    .group_by(jobs.c.compute)
)


def holding(connection: Connection, workspace: str, user: str) -> list[tuple[str, int, int]]:
    """(compute, jobs, nodes) of the jobs that hold nodes now."""
    rows = connection.execute(_HOLDING, {"place": workspace, "whose": user})
    return [(compute, int(count), int(nodes)) for compute, count, nodes in rows]


def unmeasured(connection: Connection, workspace: str) -> Sequence[int]:
    """Jobs and runs that have ended and are not measured yet."""
    query = (
        select(jobs.c.id)
        .outerjoin(stored_sizes, stored_sizes.c.job_id == jobs.c.id)
        .where(
            jobs.c.workspace == workspace,
            jobs.c.status.in_([status.value for status in ENDED]),
            stored_sizes.c.job_id.is_(None),
        )
    )
    return list(connection.execute(query).scalars())


@dataclass(frozen=True)
class StoredSize:
    """What an ended job or run keeps on disk; `snapshot` is its code, shared with other jobs."""

    job_id: int
    size_bytes: int
    snapshot: str
    snapshot_bytes: int


def keep_sizes(connection: Connection, sizes: Sequence[StoredSize]) -> None:
    insert_new(connection, stored_sizes, [dict(vars(size)) for size in sizes])


def kept_bytes(connection: Connection, workspace: str, user: str) -> int:
    """Bytes of all measured jobs of a user, of everyone if `user` is empty; each snapshot once."""
    measured = (
        select(stored_sizes.c.size_bytes, stored_sizes.c.snapshot, stored_sizes.c.snapshot_bytes)
        .join(jobs, jobs.c.id == stored_sizes.c.job_id)
        .where(jobs.c.workspace == workspace)
    )
    if user:
        measured = measured.where(jobs.c.owner == user)
    sizes = measured.subquery()
    files = connection.execute(select(func.sum(sizes.c.size_bytes))).scalar() or 0
    once = select(sizes.c.snapshot, sizes.c.snapshot_bytes).distinct().subquery()
    code = connection.execute(select(func.sum(once.c.snapshot_bytes))).scalar() or 0
    return int(files) + int(code)
