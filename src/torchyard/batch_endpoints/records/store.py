"""The tables of batch endpoints, their deployments and jobs.

Owns: SQL, and the way between rows and the types.
Leaves: what a change means to actions.
Always: names are found in any case, as Azure's clients compare them; what is an endpoint's goes
with it, except jobs, which are jobs'.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Index,
    String,
    Table,
    delete,
    func,
    insert,
    select,
    update,
)

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


def add_endpoint(connection: Connection, endpoint: BatchEndpoint) -> None:
    connection.execute(insert(endpoints).values(dict(vars(endpoint))))


def endpoint_named(connection: Connection, workspace: str, name: str) -> BatchEndpoint | None:
    query = select(endpoints).where(
        endpoints.c.workspace == workspace, func.lower(endpoints.c.name) == name.lower()
    )
    row = connection.execute(query).first()
    return None if row is None else BatchEndpoint(**row._mapping)


def endpoints_in(connection: Connection, workspace: str) -> list[BatchEndpoint]:
    query = select(endpoints).where(endpoints.c.workspace == workspace).order_by(endpoints.c.name)
    return [BatchEndpoint(**row._mapping) for row in connection.execute(query)]


def change_endpoint(connection: Connection, endpoint: BatchEndpoint, **values: Any) -> None:
    connection.execute(update(endpoints).where(*_of(endpoint)).values(values))


def remove_endpoint(connection: Connection, endpoint: BatchEndpoint) -> None:
    """With its deployments, and the notes of which jobs were its own."""
    for table in (deployments, jobs):
        connection.execute(
            delete(table).where(
                table.c.workspace == endpoint.workspace, table.c.endpoint == endpoint.name
            )
        )
    connection.execute(delete(endpoints).where(*_of(endpoint)))


def add_deployment(connection: Connection, deployment: BatchDeployment) -> None:
    connection.execute(insert(deployments).values(dict(vars(deployment))))


def deployment_named(
    connection: Connection, endpoint: BatchEndpoint, name: str
) -> BatchDeployment | None:
    query = select(deployments).where(
        deployments.c.workspace == endpoint.workspace,
        deployments.c.endpoint == endpoint.name,
        func.lower(deployments.c.name) == name.lower(),
    )
    row = connection.execute(query).first()
    return None if row is None else BatchDeployment(**row._mapping)


def deployments_in(connection: Connection, endpoint: BatchEndpoint) -> list[BatchDeployment]:
    query = (
        select(deployments)
        .where(
            deployments.c.workspace == endpoint.workspace, deployments.c.endpoint == endpoint.name
        )
        .order_by(deployments.c.name)
    )
    return [BatchDeployment(**row._mapping) for row in connection.execute(query)]


def change_deployment(connection: Connection, deployment: BatchDeployment, **values: Any) -> None:
    connection.execute(update(deployments).where(*_of_deployment(deployment)).values(values))


def remove_deployment(connection: Connection, deployment: BatchDeployment) -> None:
    connection.execute(delete(deployments).where(*_of_deployment(deployment)))


def put_job(connection: Connection, job: BatchJob) -> None:
    """Add one, in place of one of the name that was deleted since."""
    conditions = (jobs.c.workspace == job.workspace, jobs.c.job == job.job)
    connection.execute(delete(jobs).where(*conditions))
    connection.execute(insert(jobs).values(dict(vars(job))))


def job_named(connection: Connection, workspace: str, name: str) -> BatchJob | None:
    query = select(jobs).where(jobs.c.workspace == workspace, jobs.c.job == name)
    row = connection.execute(query).first()
    return None if row is None else BatchJob(**row._mapping)


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


def _of(endpoint: BatchEndpoint) -> tuple[Any, ...]:
    return endpoints.c.workspace == endpoint.workspace, endpoints.c.name == endpoint.name


def _of_deployment(deployment: BatchDeployment) -> tuple[Any, ...]:
    return (
        deployments.c.workspace == deployment.workspace,
        deployments.c.endpoint == deployment.endpoint,
        deployments.c.name == deployment.name,
    )
