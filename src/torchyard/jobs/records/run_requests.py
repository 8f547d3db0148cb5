"""The table of requests that made a run, so that a repeated one makes no other.

Owns: SQL.
Leaves: what a request's id is to the client that repeats it.
Always: written in the transaction that makes the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    String,
    Table,
    delete,
    insert,
    select,
    tuple_,
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


def known(connection: Connection, requests: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of these (workspace, request) that made a run already."""
    table = run_requests.c
    place = tuple_(table.workspace, table.request)
    query = select(table.workspace, table.request).where(place.in_(requests))
    return {(workspace, request) for workspace, request in connection.execute(query)}


def keep(connection: Connection, made: Sequence[tuple[str, str, int]]) -> None:
    """(workspace, request, job) of runs that were made."""
    names = ("workspace", "request", "job_id")
    rows = [dict(zip(names, values, strict=True)) for values in made]
    if rows:
        connection.execute(insert(run_requests), rows)


def drop(connection: Connection, job_id: int) -> None:
    connection.execute(delete(run_requests).where(run_requests.c.job_id == job_id))
