"""The table of assets that SDK v1's clients keep with a run, such as explanations of its model.

Owns: SQL, the type of one asset, which assets a list shows.
Leaves: what an asset's artifacts are to azureml/sdk_v1/assets.py.
Always: a run has an asset once, known by its id; a job's assets go with the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Integer,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.base.errors import LimitExceeded

ASSETS_MAX = 1000
"""Of one run."""

run_assets = Table(
    "run_assets",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("type", String(256), nullable=False),
    Column("description", Text, nullable=False),
    Column("artifacts", JSON, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("meta", JSON, nullable=False),
    Column("created_at", Instant, nullable=False),
)


@dataclass(frozen=True)
class RunAsset:
    """One asset as its client described it. Each of `artifacts` has an `id` or a `prefix`."""

    name: str
    artifacts: Sequence[Mapping[str, str]]
    created_at: datetime
    type: str = ""
    description: str = ""
    tags: Mapping[str, str | None] = field(default_factory=dict)
    properties: Mapping[str, str | None] = field(default_factory=dict)
    meta: Mapping[str, str | None] = field(default_factory=dict)


def put(connection: Connection, job_id: int, asset: RunAsset) -> None:
    """Keep an asset of the run; one of the same artifacts is replaced.

    Raises:
        LimitExceeded: the run has `ASSETS_MAX` already.
    """
    values = {**vars(asset), "artifacts": [dict(artifact) for artifact in asset.artifacts]}
    assets = _rows(connection, job_id)
    for number, other in assets.items():
        if list(other.artifacts) == values["artifacts"]:
            of_asset = (run_assets.c.job_id == job_id, run_assets.c.number == number)
            connection.execute(update(run_assets).where(*of_asset).values(values))
            return
    if len(assets) >= ASSETS_MAX:
        raise LimitExceeded(
            f"a run has at most {ASSETS_MAX} assets, and this one has as many",
            "delete the run, or keep the files as its artifacts",
        )
    number = max(assets, default=0) + 1
    connection.execute(insert(run_assets).values({**values, "job_id": job_id, "number": number}))


def of_job(connection: Connection, job_id: int) -> list[RunAsset]:
    """The oldest first."""
    return list(_rows(connection, job_id).values())


def _rows(connection: Connection, job_id: int) -> dict[int, RunAsset]:
    query = select(run_assets).where(run_assets.c.job_id == job_id).order_by(run_assets.c.number)
    assets = {}
    for row in connection.execute(query):
        values = dict(row._mapping)
        del values["job_id"]
        number = values.pop("number")
        assets[number] = RunAsset(**values)
    return assets


def drop(connection: Connection, job_id: int) -> None:
    connection.execute(delete(run_assets).where(run_assets.c.job_id == job_id))
