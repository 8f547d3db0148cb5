"""The tables of jobs, attempts and events.

Owns: SQL, and the way between rows and the types of this room.
Leaves: what may happen when to actions.py.
Always: events of a job are numbered without gaps, because only a write transaction numbers them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    Row,
    Select,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    func,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.jobs.experiment_store import Id, experiments
from torchyard.jobs.types import (
    Attempt,
    AttemptNode,
    Event,
    Job,
    JobError,
    Status,
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("name", String(256), nullable=False),
    Column("type", String(16), nullable=False),
    Column("experiment_id", ForeignKey("experiments.id"), nullable=False, index=True),
    Column("status", String(20), nullable=False),
    Column("owner", String(128), nullable=False),
    Column("display_name", String(256), nullable=False),
    Column("spec", JSON, nullable=False),
    Column("spec_hash", String(64), nullable=False),
    Column("environment", JSON),
    Column("environment_hash", String(64), nullable=False),
    Column("compute", String(64), nullable=False),
    Column("node_count", Integer, nullable=False),
    Column("processes_per_node", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("parent", String(256), nullable=False),
    Column("exit_code", Integer),
    Column("error", JSON),
    Column("attempt", Integer, nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("archived", Boolean, nullable=False),
    Column("description", Text, nullable=False),
    UniqueConstraint("workspace", "name"),
    Index("ix_jobs_status_id", "status", "id"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("workspace", String(64), nullable=False),
    Column("job_name", String(256), nullable=False),
    Column("number", Integer, nullable=False),
    Column("node_count", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("handle", JSON),
    Column("order", String(16), nullable=False),
    Column("order_reason", String(32), nullable=False),
    Column("ended_at", Instant, index=True),
    Column("clean", Boolean, nullable=False),
    UniqueConstraint("job_id", "number"),
)

attempt_nodes = Table(
    "attempt_nodes",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id"), primary_key=True),
    Column("node", Integer, primary_key=True),
    Column("next_seq", Integer, nullable=False),
    Column("seen_at", Instant, nullable=False),
    Column("state", String(16), nullable=False),
    Column("address", String(128), nullable=False),
    Column("port", Integer),
    Column("exit_code", Integer),
    Column("error", JSON),
    Column("failed_at", Instant),
)

events = Table(
    "events",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("at", Instant, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("body", JSON, nullable=False),
)

# Jobs


def add_job(connection: Connection, values: dict[str, Any]) -> int:
    result = connection.execute(insert(jobs).values(values))
    assert result.inserted_primary_key is not None
    return int(result.inserted_primary_key[0])


def _jobs() -> Select[Any]:
    return select(jobs, experiments.c.name.label("experiment_name")).join(
        experiments, jobs.c.experiment_id == experiments.c.id
    )


def job_named(connection: Connection, workspace: str, name: str) -> Job | None:
    row = connection.execute(
        _jobs().where(jobs.c.workspace == workspace, jobs.c.name == name)
    ).one_or_none()
    return None if row is None else _job(row)


def job_by_id(connection: Connection, job_id: int) -> Job:
    return _job(connection.execute(_jobs().where(jobs.c.id == job_id)).one())


def list_jobs(
    connection: Connection,
    workspace: str,
    *,
    experiment_ids: Collection[int] | None = None,
    status: Status | None = None,
    before: int | None = None,
    limit: int | None = None,
    deleted: bool | None = False,
    archived: bool | None = None,
    parent: str | None = None,
    tags: Mapping[str, str | None] | None = None,
) -> list[Job]:
    """Newest first; `deleted` and `archived` None take both; a tag None takes any value."""
    query = _jobs().where(jobs.c.workspace == workspace).order_by(jobs.c.id.desc())
    if experiment_ids is not None:
        query = query.where(jobs.c.experiment_id.in_(experiment_ids))
    if status is not None:
        query = query.where(jobs.c.status == status.value)
    if before is not None:
        query = query.where(jobs.c.id < before)
    if deleted is not None:
        query = query.where(jobs.c.deleted == deleted)
    if archived is not None:
        query = query.where(jobs.c.archived == archived)
    if parent is not None:
        query = query.where(jobs.c.parent == parent)
    for tag, value in (tags or {}).items():
        held = jobs.c.tags[tag].as_string()
        query = query.where(held.is_not(None) if value is None else held == value)
    if limit is not None:
        query = query.limit(limit)
    return [_job(row) for row in connection.execute(query)]


def count_jobs(connection: Connection, workspace: str) -> dict[int, tuple[int, datetime]]:
    """How many jobs and runs each experiment has, and when the last of them was made."""
    rows = connection.execute(
        select(jobs.c.experiment_id, func.count(), func.max(jobs.c.created_at))
        .where(jobs.c.workspace == workspace, jobs.c.deleted == false())
        .group_by(jobs.c.experiment_id)
    )
    return {experiment: (number, last) for experiment, number, last in rows}


def job_names(connection: Connection, workspace: str, limit: int = 1000) -> list[str]:
    rows = connection.execute(
        select(jobs.c.name)
        .where(jobs.c.workspace == workspace)
        .order_by(jobs.c.id.desc())
        .limit(limit)
    )
    return [row.name for row in rows]


def queue_heads(connection: Connection) -> list[Job]:
    """The job that is first in line at each cluster, oldest first."""
    first = (
        select(func.min(jobs.c.id))
        .where(jobs.c.type == "command", jobs.c.status == Status.QUEUED.value)
        .group_by(jobs.c.workspace, jobs.c.compute)
    )
    return [
        _job(row)
        for row in connection.execute(_jobs().where(jobs.c.id.in_(first)).order_by(jobs.c.id))
    ]


def count_ahead(connection: Connection, job: Job) -> int:
    """Queued jobs at the same cluster that were submitted earlier."""
    return connection.execute(
        select(func.count())
        .select_from(jobs)
        .where(
            jobs.c.status == Status.QUEUED.value,
            jobs.c.workspace == job.workspace,
            jobs.c.compute == job.compute,
            jobs.c.id < job.id,
        )
    ).scalar_one()


def jobs_in(connection: Connection, statuses: Collection[Status]) -> list[Job]:
    """Command jobs of all workspaces in these statuses, in the order of their submission."""
    rows = connection.execute(
        _jobs()
        .where(jobs.c.type == "command", jobs.c.status.in_([status.value for status in statuses]))
        .order_by(jobs.c.id)
    )
    return [_job(row) for row in rows]


def environment_hashes(connection: Connection, workspace: str) -> set[str]:
    """The environments that jobs of the workspace asked for."""
    rows = connection.execute(
        select(jobs.c.environment_hash).where(jobs.c.workspace == workspace).distinct()
    )
    return {row.environment_hash for row in rows} - {""}


def environment_of(connection: Connection, job_id: int) -> dict[str, Any]:
    """The environment as it was pinned when the job was created."""
    body: dict[str, Any] = connection.execute(
        select(jobs.c.environment).where(jobs.c.id == job_id)
    ).scalar_one()
    return body


def change_job(connection: Connection, job_id: int, **values: Any) -> None:
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(values))


def merge_tags(connection: Connection, job_id: int, tags: Mapping[str, str]) -> None:
    """Add to a job's tags; the same key gets the new value."""
    old = connection.execute(select(jobs.c.tags).where(jobs.c.id == job_id)).scalar_one()
    change_job(connection, job_id, tags={**old, **tags})


def _job(row: Row[Any]) -> Job:
    values = dict(row._mapping)
    values.pop("environment")
    values.pop("environment_hash")
    values["status"] = Status(values["status"])
    values["error"] = _error(values["error"])
    return Job(**values)


def _error(body: dict[str, Any] | None) -> JobError | None:
    return None if body is None else JobError(**body)


# Events


def add_event(
    connection: Connection, job_id: int, at: datetime, kind: str, body: dict[str, Any]
) -> int:
    last = connection.execute(
        select(func.coalesce(func.max(events.c.seq), 0)).where(events.c.job_id == job_id)
    ).scalar_one()
    connection.execute(
        insert(events).values(job_id=job_id, seq=last + 1, at=at, kind=kind, body=body)
    )
    return int(last) + 1


def events_after(connection: Connection, job_id: int, seq: int) -> list[Event]:
    rows = connection.execute(
        select(events.c.seq, events.c.at, events.c.kind, events.c.body)
        .where(events.c.job_id == job_id, events.c.seq > seq)
        .order_by(events.c.seq)
    )
    return [Event(**row._mapping) for row in rows]


# Attempts


def add_attempt(connection: Connection, attempt: Attempt) -> None:
    connection.execute(insert(attempts).values(vars(attempt)))
    rows = [
        {
            "attempt_id": attempt.id,
            "node": node,
            "next_seq": 0,
            "seen_at": attempt.created_at,
            "state": "launched",
            "address": "",
        }
        for node in range(attempt.node_count)
    ]
    connection.execute(insert(attempt_nodes), rows)


def attempt_by_id(connection: Connection, attempt_id: str) -> Attempt | None:
    row = connection.execute(select(attempts).where(attempts.c.id == attempt_id)).one_or_none()
    return None if row is None else Attempt(**row._mapping)


def attempts_of(connection: Connection, job_id: int) -> list[Attempt]:
    rows = connection.execute(
        select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.number)
    )
    return [Attempt(**row._mapping) for row in rows]


def open_attempts(connection: Connection) -> list[Attempt]:
    rows = connection.execute(
        select(attempts).where(attempts.c.ended_at.is_(None)).order_by(attempts.c.created_at)
    )
    return [Attempt(**row._mapping) for row in rows]


def unclean_attempts(connection: Connection) -> list[Attempt]:
    """Those that have ended and whose scratch folder is still to be removed."""
    rows = connection.execute(
        select(attempts).where(attempts.c.ended_at.is_not(None), attempts.c.clean == false())
    )
    return [Attempt(**row._mapping) for row in rows]


def change_attempt(connection: Connection, attempt_id: str, **values: Any) -> None:
    connection.execute(update(attempts).where(attempts.c.id == attempt_id).values(values))


def nodes_of(connection: Connection, attempt_id: str) -> list[AttemptNode]:
    rows = connection.execute(
        select(attempt_nodes)
        .where(attempt_nodes.c.attempt_id == attempt_id)
        .order_by(attempt_nodes.c.node)
    )
    return [AttemptNode(**{**row._mapping, "error": _error(row.error)}) for row in rows]


def change_node(connection: Connection, attempt_id: str, node: int, **values: Any) -> None:
    connection.execute(
        update(attempt_nodes)
        .where(attempt_nodes.c.attempt_id == attempt_id, attempt_nodes.c.node == node)
        .values(values)
    )
