"""HTTP: batch endpoints, their deployments, their jobs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Request, Response

from torchyard.base import fields
from torchyard.batch_endpoints.actions import deployments, endpoints, invocations, to_json
from torchyard.endpoints.http.kind_routes import KindRoutes
from torchyard.jobs.requests.to_json import job_json, summary_json
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces import audit
from torchyard.workspaces.guarded_routes import Person, needs
from torchyard.workspaces.permissions import Permission

router = KindRoutes(
    endpoints.BATCH,
    deployments.BATCH_DEPLOYMENTS,
    lambda _, endpoint: to_json.endpoint_json(endpoint),
    lambda _, deployment, notices: to_json.deployment_json(deployment, notices),
    {
        "create": "Create a batch endpoint, or replace the file of one.",
        "update": "Change single keys, such as `defaults`.",
        "delete": "Delete a batch endpoint with its deployments; its jobs stay.",
        "create_deployment": "Create a deployment, or replace the file of one.",
        "update_deployment": "Change single keys, such as `settings`.",
        "delete_deployment": "Delete a deployment; its jobs stay.",
    },
).router()


@router.post("/{endpoint}/jobs", status_code=201)
@needs(Permission.WRITE)
def invoke(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    identity: Person,
    request: Request,
    response: Response,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    """Score files with a deployment, by a job of the caller's."""
    mapping = fields.mapping(document, "the invocation")
    job, is_new = invocations.invoke(services, workspace, endpoint, mapping, identity)
    audit.note_about(request.scope, job=job.name)
    response.status_code = 201 if is_new else 200
    return {**job_json(services, job), "submitted": is_new}


@router.get("/{endpoint}/jobs")
@needs(Permission.READ)
def list_jobs(
    services: ServicesOf, workspace: str, endpoint: str, deployment_name: str = ""
) -> dict[str, Any]:
    """The jobs of the endpoint's invocations, the newest first."""
    made = invocations.jobs_of(services.db, workspace, endpoint, deployment_name)
    return {"value": [summary_json(job) for job in made]}
