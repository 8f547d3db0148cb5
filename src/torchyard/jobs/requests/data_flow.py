"""What the jobs of a workspace take and make, without the rest of their documents.

Owns: reading it for all of them at once.
Leaves: what the paths stand for to lineage/.
Always: no other part of a document is read, so none of its secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import JSON, Connection, Text, cast, select, type_coerce

from torchyard.jobs.records import store
from torchyard.jobs.records.types import COMMAND


@dataclass(frozen=True)
class JobData:
    """`inputs` and `outputs` as a job's document has them, which may be one of another package."""

    id: int
    name: str
    type: str
    parent: str
    inputs: Any
    outputs: Any


@dataclass(frozen=True)
class JobState:
    display_name: str
    status: str


def of_jobs(connection: Connection, workspace: str) -> list[JobData]:
    """Of jobs that may have either, a parent or children, the oldest first; none is deleted."""
    jobs = store.jobs
    document = type_coerce(jobs.c.spec, JSON)
    # Found in the text: reading the JSON of all jobs takes ten times as long.
    has_path = cast(jobs.c.spec, Text).contains('"path"')
    query = (
        select(
            *(jobs.c.id, jobs.c.name, jobs.c.type, jobs.c.parent),
            document["inputs"].label("inputs"),
            document["outputs"].label("outputs"),
        )
        .where(jobs.c.workspace == workspace, ~store.IS_RUN, jobs.c.deleted.is_(False))
        .where(has_path | (jobs.c.parent != "") | (jobs.c.type != COMMAND))
        .order_by(jobs.c.id)
    )
    return [JobData(**row._mapping) for row in connection.execute(query)]


def states(connection: Connection, workspace: str, names: Sequence[str]) -> Mapping[str, JobState]:
    """By name; jobs that were deleted are left out."""
    jobs = store.jobs
    query = select(jobs.c.name, jobs.c.display_name, jobs.c.status).where(
        jobs.c.workspace == workspace, jobs.c.deleted.is_(False), jobs.c.name.in_(names)
    )
    return {name: JobState(*state) for name, *state in connection.execute(query)}
