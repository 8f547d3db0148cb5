"""The table of requests that made a run, so that a repeated one makes no other.

Owns: SQL.
Leaves: what a request's id is to the client that repeats it.
Always: written in the transaction that makes the run.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    String,
    Table,
    delete,
    insert,
    select,
)

from torchyard.base.db import metadata

run_requests = Table(
    "run_requests",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("request", String(64), primary_key=True),
    Column("job_id", BigInteger, nullable=False),
)


def job_made_by(connection: Connection, workspace: str, request: str) -> int | None:
    number: int | None = connection.execute(
        select(run_requests.c.job_id).where(
            run_requests.c.workspace == workspace, run_requests.c.request == request
        )
    ).scalar()
    return number


def add(connection: Connection, workspace: str, request: str, job_id: int) -> None:
    """Note which run a request made."""
    values = {"workspace": workspace, "request": request, "job_id": job_id}
    connection.execute(insert(run_requests).values(values))


def drop(connection: Connection, job_id: int) -> None:
    connection.execute(delete(run_requests).where(run_requests.c.job_id == job_id))
