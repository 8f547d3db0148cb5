"""The tables of batch endpoints, their deployments and jobs.

Owns: SQL, and the way between rows and the types.
Leaves: what a change means to actions.
Always: names are found in any case, as Azure's clients compare them; what is an endpoint's goes
with it, except jobs, which are jobs'.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Index,
    String,
    Table,
    delete,
    select,
)

from torchyard.assets.named_table import NamedTable
from torchyard.base.db import Instant, metadata
from torchyard.base.documents import secret_variables
from torchyard.batch_endpoints.records.types import BatchDeployment, BatchEndpoint, BatchJob

endpoints = Table(
    "batch_endpoints",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column("document", JSON, nullable=False),
    Column("default_deployment", String(64), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
)

deployments = Table(
    "batch_deployments",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("endpoint", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column(
        "document",
        secret_variables.sealed("batch deployment `{name}` of endpoint `{endpoint}`"),
        nullable=False,
    ),
    Column("created_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
)

jobs = Table(
    "batch_jobs",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("job", String(256), primary_key=True),
    Column("endpoint", String(64), nullable=False),
    Column("deployment", String(64), nullable=False),
    Column("created_at", Instant, nullable=False),
    Index("ix_batch_jobs_workspace_endpoint", "workspace", "endpoint", "created_at"),
)


endpoint_rows = NamedTable(endpoints, BatchEndpoint, in_any_case=True)
deployment_rows = NamedTable(deployments, BatchDeployment, in_any_case=True)
change_endpoint, deployments_in = endpoint_rows.change, deployment_rows.list_in
_jobs = NamedTable(jobs, BatchJob)
put_job, job_named = _jobs.put, _jobs.get


def remove_endpoint(connection: Connection, endpoint: BatchEndpoint) -> None:
    """With its deployments, and the notes of which jobs were its own."""
    deployment_rows.drop(connection, endpoint.workspace, endpoint.name)
    of_endpoint = (jobs.c.workspace == endpoint.workspace, jobs.c.endpoint == endpoint.name)
    connection.execute(delete(jobs).where(*of_endpoint))
    endpoint_rows.remove(connection, endpoint)


def jobs_of(
    connection: Connection, endpoint: BatchEndpoint, deployment: str = "", limit: int = 1000
) -> list[BatchJob]:
    """The newest first; of one deployment, or of all."""
    query = select(jobs).where(
        jobs.c.workspace == endpoint.workspace, jobs.c.endpoint == endpoint.name
    )
    if deployment:
        query = query.where(jobs.c.deployment == deployment)
    query = query.order_by(jobs.c.created_at.desc(), jobs.c.job.desc()).limit(limit)
    return [BatchJob(**row._mapping) for row in connection.execute(query)]
