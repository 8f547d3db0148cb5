"""The tables of validations and releases, of schedules, and of advisories.

Owns: SQL, and the way between rows and the types.
Leaves: jobs to jobs/requests/parents.py, what a row means to running/.
Always: a row is added with its job's, in one transaction, and outlives the job; advisories are
read by the name of their package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    String,
    Table,
    delete,
    insert,
    select,
    update,
)

from torchyard.assets.named_table import NamedTable
from torchyard.base.db import Instant, metadata
from torchyard.releases.records.types import AdvisorySet, Gate, Record, Schedule

records = Table(
    "environment_releases",
    metadata,
    Column("number", Integer, primary_key=True),
    # Without a foreign key: the job may be deleted, and its report is still read.
    Column("job_id", BigInteger, nullable=False, index=True),
    Column("workspace", String(64), nullable=False),
    Column("job", String(256), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("environment", String(256), nullable=False),
    Column("base", String(330), nullable=False),
    Column("owner", String(128), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("request", JSON, nullable=False),
    Column("stage", String(16), nullable=False),
    Column("gates", JSON, nullable=False),
    Column("results", JSON, nullable=False),
    Column("report", JSON, nullable=False),
    Column("version", String(64), nullable=False),
    Index("ix_environment_releases_environment", "workspace", "environment", "number"),
)

schedules = Table(
    "release_schedules",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("environment", String(256), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column("every_s", Integer, nullable=False),
    Column("request", JSON, nullable=False),
    Column("next_at", Instant, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("last_job", String(256), nullable=False),
)

advisory_sets = Table(
    "advisory_sets",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("id", String(64), nullable=False),
    Column("replaced_at", Instant, nullable=False),
    Column("sent_by", String(128), nullable=False),
    Column("count", Integer, nullable=False),
)

advisories = Table(
    "advisories",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("set_id", String(64), nullable=False),
    Column("package", String(256), nullable=False),
    Column("entry", JSON, nullable=False),
    Index("ix_advisories_package", "workspace", "set_id", "package"),
)

# So many names in one query.
_AT_ONCE = 500


def add(connection: Connection, record: Record) -> None:
    connection.execute(insert(records).values(**_row(record)))


def change(connection: Connection, record: Record) -> None:
    """Write its stage, gates, results, report and version."""
    row = _row(record)
    values = {key: row[key] for key in ("stage", "gates", "results", "report", "version")}
    query = update(records).where(*_key(record)).values(**values)
    connection.execute(query)


def of_job(connection: Connection, workspace: str, job: str) -> Record | None:
    """The newest of a job's name, which may be used again once the job is deleted."""
    query = select(records).where(records.c.workspace == workspace, records.c.job == job)
    row = connection.execute(query.order_by(records.c.number.desc()).limit(1)).first()
    return None if row is None else _record(row._mapping)


def of_job_id(connection: Connection, workspace: str, job: str, job_id: int) -> Record | None:
    record = of_job(connection, workspace, job)
    return record if record is not None and record.job_id == job_id else None


def list_in(
    connection: Connection, workspace: str, environment: str = "", kind: str = ""
) -> list[Record]:
    """The newest first; all environments or kinds where none is named."""
    query = select(records).where(records.c.workspace == workspace)
    if environment:
        query = query.where(records.c.environment == environment)
    if kind:
        query = query.where(records.c.kind == kind)
    rows = connection.execute(query.order_by(records.c.number.desc()))
    return [_record(row._mapping) for row in rows]


_schedules = NamedTable(schedules, Schedule)
put_schedule, drop_schedule = _schedules.put, _schedules.drop
schedule_of, list_schedules = _schedules.get, _schedules.list_in


def advance(connection: Connection, schedule: Schedule, next_at: datetime, job: str) -> bool:
    """Move on to the next release; False where another server, or a person, was first."""
    as_read = schedules.c.next_at == schedule.next_at
    last_job = job or schedule.last_job
    return _schedules.change(connection, schedule, as_read, next_at=next_at, last_job=last_job)


_sets = NamedTable(advisory_sets, AdvisorySet)
set_of = _sets.get


def replace_set(connection: Connection, new: AdvisorySet) -> None:
    """Make these the workspace's advisories, and drop all others."""
    in_workspace = advisories.c.workspace == new.workspace
    connection.execute(delete(advisories).where(in_workspace, advisories.c.set_id != new.id))
    _sets.put(connection, new)


def add_advisories(
    connection: Connection,
    workspace: str,
    set_id: str,
    entries: Sequence[tuple[str, Mapping[str, Any]]],
) -> None:
    """
    Args:
        entries: (package, entry) of each.
    """
    rows = [
        {"workspace": workspace, "set_id": set_id, "package": package, "entry": dict(entry)}
        for package, entry in entries
    ]
    if rows:
        connection.execute(insert(advisories), rows)


def drop_unfinished(connection: Connection, workspace: str, set_ids: Iterable[str]) -> None:
    """Drop the advisories of all sets but these."""
    in_workspace = advisories.c.workspace == workspace
    connection.execute(
        delete(advisories).where(in_workspace, advisories.c.set_id.not_in(list(set_ids)))
    )


def count_advisories(connection: Connection, workspace: str, set_id: str) -> int:
    query = select(advisories.c.number).where(
        advisories.c.workspace == workspace, advisories.c.set_id == set_id
    )
    return len(connection.execute(query).all())


def about(
    connection: Connection, workspace: str, set_id: str, packages: Sequence[str]
) -> list[Mapping[str, Any]]:
    """The entries about these packages."""
    documents: list[Mapping[str, Any]] = []
    for start in range(0, len(packages), _AT_ONCE):
        query = select(advisories.c.entry).where(
            advisories.c.workspace == workspace,
            advisories.c.set_id == set_id,
            advisories.c.package.in_(packages[start : start + _AT_ONCE]),
        )
        documents += connection.execute(query.order_by(advisories.c.number)).scalars()
    return documents


def delete_all(connection: Connection, workspace: str) -> None:
    """Forget everything of a workspace that is being deleted."""
    for table in (records, schedules, advisory_sets, advisories):
        connection.execute(delete(table).where(table.c.workspace == workspace))


def _row(record: Record) -> dict[str, Any]:
    return {**vars(record), "gates": [gate.to_json() for gate in record.gates]}


def _record(row: Mapping[Any, Any]) -> Record:
    values = {key: value for key, value in row.items() if key != "number"}
    return Record(**{**values, "gates": tuple(Gate(**gate) for gate in row["gates"])})


def _key(record: Record) -> tuple[Any, ...]:
    return (
        records.c.workspace == record.workspace,
        records.c.job == record.job,
        records.c.job_id == record.job_id,
    )
