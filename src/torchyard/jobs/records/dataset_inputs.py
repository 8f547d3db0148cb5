"""The table of data sets that runs were given.

Owns: SQL, the type of one input.
Leaves: what a client may send to mlflow/.
Always: a run holds a data set once, known by its name and digest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    String,
    Table,
    Text,
    delete,
    false,
    func,
    select,
)

from torchyard.base.db import insert_new, metadata
from torchyard.jobs.records.store import jobs

run_datasets = Table(
    "run_datasets",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", String(500), primary_key=True),
    Column("digest", String(128), primary_key=True),
    Column("place", Integer, nullable=False),
    Column("context", String(500)),
    Column("source_type", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("schema", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    Index("ix_run_datasets_name_job_id", "name", "job_id"),
)


@dataclass(frozen=True)
class DatasetInput:
    """One data set as a client told of it; `context` is what it was used for."""

    name: str
    digest: str
    source_type: str = ""
    source: str = ""
    schema: str = ""
    profile: str = ""
    context: str | None = None
    tags: dict[str, str] = field(default_factory=dict)


def add(connection: Connection, job_id: int, inputs: Sequence[DatasetInput]) -> None:
    """Add those that the run does not hold yet, behind those it has."""
    if not inputs:
        return
    count = connection.execute(
        select(func.count()).select_from(run_datasets).where(run_datasets.c.job_id == job_id)
    ).scalar_one()
    rows = [
        {"job_id": job_id, "place": count + at, **vars(dataset_input)}
        for at, dataset_input in enumerate(inputs)
    ]
    insert_new(connection, run_datasets, rows)


def of_jobs(connection: Connection, job_ids: Collection[int]) -> dict[int, list[DatasetInput]]:
    """What each of these jobs was given, in the order it told."""
    inputs_by_job: dict[int, list[DatasetInput]] = {}
    query = (
        select(run_datasets)
        .where(run_datasets.c.job_id.in_(job_ids))
        .order_by(run_datasets.c.job_id, run_datasets.c.place, run_datasets.c.name)
    )
    for row in connection.execute(query):
        values = dict(row._mapping)
        del values["place"]
        inputs_by_job.setdefault(values.pop("job_id"), []).append(DatasetInput(**values))
    return inputs_by_job


def in_experiments(
    connection: Connection, experiment_ids: Collection[int], limit: int = 1000
) -> list[tuple[int, str, str, str | None]]:
    """(experiment, name, digest, context), each once, those of the newest run first."""
    newest = func.max(jobs.c.id)
    columns = (run_datasets.c.name, run_datasets.c.digest, run_datasets.c.context)
    query = (
        select(jobs.c.experiment_id, *columns)
        .join(jobs, jobs.c.id == run_datasets.c.job_id)
        .where(jobs.c.experiment_id.in_(experiment_ids), jobs.c.deleted == false())
        .group_by(jobs.c.experiment_id, *columns)
        .order_by(newest.desc(), run_datasets.c.name)
        .limit(limit)
    )
    return [(row[0], row[1], row[2], row[3]) for row in connection.execute(query)]


def drop(connection: Connection, job_id: int) -> None:
    connection.execute(delete(run_datasets).where(run_datasets.c.job_id == job_id))
