"""The table of jobs that count as children of other jobs than their parent.

Owns: SQL; which jobs are children of one, its own or adopted.
Leaves: why a job is adopted to those who do it: a pipeline takes up jobs of steps that it reuses.
Always: rows go with the job that adopted; what it adopted stays as long as it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    Select,
    Table,
    or_,
    select,
)

from torchyard.base.db import insert_new, metadata
from torchyard.jobs.records.store import jobs

adopted_jobs = Table(
    "adopted_jobs",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("child_id", BigInteger, primary_key=True, autoincrement=False),
)


def adopt(connection: Connection, job_id: int, child_id: int) -> None:
    """Have a job count among the children of another one; does nothing where it does."""
    insert_new(connection, adopted_jobs, [{"job_id": job_id, "child_id": child_id}])


def adopted_by(names: Sequence[str]) -> Select[Any]:
    """The ids of what jobs of these names have adopted, which is in their workspace."""
    above = jobs.alias()
    joined = adopted_jobs.join(above, above.c.id == adopted_jobs.c.job_id)
    return select(adopted_jobs.c.child_id).select_from(joined).where(above.c.name.in_(names))


def is_child_of(names: Sequence[str]) -> ColumnElement[bool]:
    """Of a job in the workspace of those that have these names."""
    return or_(jobs.c.parent.in_(names), jobs.c.id.in_(adopted_by(names)))
