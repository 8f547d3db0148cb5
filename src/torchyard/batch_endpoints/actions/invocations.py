"""Invoke a batch endpoint: make the job that scores, and list the jobs that were made.

Owns: which deployment scores, what an invocation changes of it, the note of whose job it is.
Leaves: the job's document to running/scoring_jobs.py, the job itself to jobs/.
Always: the job belongs to the person who invokes; the note is written in the transaction that
stores the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.batch_endpoints.actions import deployments, endpoints
from torchyard.batch_endpoints.records import store
from torchyard.batch_endpoints.records.types import BatchDeployment, BatchEndpoint, BatchJob
from torchyard.batch_endpoints.running import scoring_jobs
from torchyard.batch_endpoints.spec import deployment_spec, invocation
from torchyard.batch_endpoints.spec.deployment_spec import BatchDeploymentSpec
from torchyard.batch_endpoints.spec.invocation import Invocation
from torchyard.endpoints.spec.changes import merged
from torchyard.jobs import actions as jobs
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import submission
from torchyard.jobs.services import Services
from torchyard.workspaces.types import Identity


def invoke(
    services: Services,
    workspace: str,
    endpoint_name: str,
    document: Mapping[str, Any],
    identity: Identity,
) -> tuple[Job, bool]:
    """Submit the job; return it, and whether it is new.

    Raises:
        InvalidSpec: what is wrong, and where.
        NotFound: no such endpoint or deployment.
        InvalidInput: the endpoint has no default deployment.
        Conflict: the job's name is taken by another one.
    """
    invocation_request = invocation.read(document)
    endpoint = endpoints.get(services.db, workspace, endpoint_name)
    deployment = _chosen(services.db, endpoint, invocation_request.deployment_name)
    spec = _changed(deployment, invocation_request)
    job_document = scoring_jobs.document_of(
        services.blobs.of(workspace), spec, endpoint.name, invocation_request
    )
    if (
        invocation_request.job_name
        and jobs.find_by_name(services.db, workspace, invocation_request.job_name) is not None
    ):
        return submission.create(services, workspace, job_document, identity)

    def note(connection: Connection, job: Job) -> None:
        row = BatchJob(workspace, job.name, endpoint.name, deployment.name, job.created_at)
        store.put_job(connection, row)

    try:
        return submission.create_new(services, workspace, job_document, identity, also=note)
    except TorchyardError as error:
        error.at = _key_in_invocation(tuple(error.at), invocation_request)
        raise


def jobs_of(
    db: Database, workspace: str, endpoint_name: str, deployment_name: str = ""
) -> list[Job]:
    """The newest first.

    Args:
        deployment_name: all of the endpoint's when empty.
    """
    endpoint = endpoints.get(db, workspace, endpoint_name)
    name = ""
    if deployment_name:
        name = deployments.get(db, workspace, endpoint_name, deployment_name).name
    with db.read() as connection:
        rows = store.jobs_of(connection, endpoint, name)
    there = [(row, jobs.find_by_name(db, workspace, row.job)) for row in rows]
    # A job of the same name that was made since is another one.
    return [job for row, job in there if job is not None and job.created_at == row.created_at]


def is_invocation(db: Database, job: Job) -> bool:
    """Whether the job was made by an invocation of a batch endpoint."""
    with db.read() as connection:
        row = store.job_named(connection, job.workspace, job.name)
    return row is not None and row.created_at == job.created_at


def _chosen(db: Database, endpoint: BatchEndpoint, name: str) -> BatchDeployment:
    chosen = name or endpoint.default_deployment
    if not chosen:
        raise InvalidInput(
            f"batch endpoint `{endpoint.name}` has no default deployment",
            "create one with `yard batch-deployment create -f deployment.yml`",
            code="no_default_deployment",
        )
    return deployments.get(db, endpoint.workspace, endpoint.name, chosen)


def _changed(deployment: BatchDeployment, request: Invocation) -> BatchDeploymentSpec:
    """The deployment with what the invocation changes of it."""
    document = dict(deployment.document)
    if request.changes:
        settings = dict(document.get("settings") or {})
        for key, value in request.changes.items():
            before = settings.get(key, document.pop(key, None))
            settings[key] = merged(before, value)
        document["settings"] = settings
    spec = deployment_spec.read(document)
    if request.instance_count:
        resources = replace(spec.resources, instance_count=request.instance_count)
        spec = replace(spec, resources=resources)
    return spec


def _key_in_invocation(at: tuple[str | int, ...], request: Invocation) -> tuple[str | int, ...]:
    """Where in the invocation the job's key was written."""
    if at[:2] == ("inputs", scoring_jobs.DATA):
        return (*request.input_at, *at[2:])
    if at[:1] == ("name",):
        return ("job_name",)
    return at if at[:1] in (("outputs",), ("tags",), ("properties",), ("experiment_name",)) else ()
