"""Rows of runs as tracking clients need them, many at once.

Owns: adding the rows of several new runs by one statement, reading what logging to a run needs.
Leaves: the table, and everything else about its rows, to store.py.
Always: a run that was added is as it would be read back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, insert, select

from torchyard.jobs.records import removal_store, tag_store
from torchyard.jobs.records.store import jobs, values_of
from torchyard.jobs.records.types import Job, NewJob

_ADD = insert(jobs)
_ADD_NUMBERED = insert(jobs).returning(jobs.c.id, sort_by_parameter_order=True)


def add_runs(connection: Connection, runs: Sequence[tuple[NewJob, str]]) -> list[Job]:
    """Add runs that are not jobs, each with the name of its experiment, by one statement."""
    if connection.dialect.name == "sqlite":
        # The transaction is the only one that writes.
        first = removal_store.next_number(connection, jobs)
        ids = list(range(first, first + len(runs)))
        rows = [{**values_of(run), "id": id} for id, (run, _) in zip(ids, runs, strict=True)]
        connection.execute(_ADD, rows)
    else:
        rows = [values_of(run) for run, _ in runs]
        ids = list(connection.execute(_ADD_NUMBERED, rows).scalars())
    tags_by_job = {id: run.tags for id, (run, _) in zip(ids, runs, strict=True)}
    tag_store.add(connection, tags_by_job)
    return [_as_added(id, run, name) for id, (run, name) in zip(ids, runs, strict=True)]


def _as_added(job_id: int, run: NewJob, experiment_name: str) -> Job:
    values = {name: getattr(run, name) for name in _COPIED}
    values |= {"tags": dict(run.tags), "properties": dict(run.properties)}
    return Job(id=job_id, experiment_name=experiment_name, **values)


# What a job has as it was asked for.
_COPIED = sorted({field.name for field in fields(Job)} & {field.name for field in fields(NewJob)})


class LoggedRun(NamedTuple):
    """What has to be known of a run to log to it."""

    id: int
    deleted: bool
    owner: str
    properties: Mapping[str, str]


_LOGGED = select(jobs.c.name, jobs.c.id, jobs.c.deleted, jobs.c.owner, jobs.c.properties).where(
    jobs.c.workspace == bindparam("place"), jobs.c.name.in_(bindparam("called", expanding=True))
)


def runs_to_log_to(
    connection: Connection, workspace: str, names: Collection[str]
) -> dict[str, LoggedRun]:
    """By name; those that do not exist are left out."""
    rows = connection.execute(_LOGGED, {"place": workspace, "called": list(names)})
    return {name: LoggedRun(*values) for name, *values in rows}
