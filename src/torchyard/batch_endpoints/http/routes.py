"""HTTP: batch endpoints, their deployments, their jobs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response

from torchyard.base import fields
from torchyard.batch_endpoints.actions import deployments, endpoints, invocations
from torchyard.batch_endpoints.actions.to_json import deployment_json, endpoint_json
from torchyard.jobs.requests.to_json import job_json, summary_json
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces import audit
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/batch-endpoints",
    tags=["batch endpoints"],
    route_class=GuardedRoute,
)


@router.get("")
@needs(Permission.READ)
def list_endpoints(services: ServicesOf, workspace: str) -> dict[str, Any]:
    return {"value": [endpoint_json(each) for each in endpoints.list_in(services.db, workspace)]}


@router.get("/{endpoint}")
@needs(Permission.READ)
def show(services: ServicesOf, workspace: str, endpoint: str) -> dict[str, Any]:
    return endpoint_json(endpoints.get(services.db, workspace, endpoint))


@router.put("/{endpoint}")
@needs(Permission.WRITE)
def create(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    identity: Person,
    document: Annotated[Any, Body()],
    response: Response,
) -> dict[str, Any]:
    """Create a batch endpoint, or replace the file of one."""
    endpoint_document = fields.with_path_name(
        fields.mapping(document, "the endpoint's document"), endpoint
    )
    made, is_new = endpoints.create(services, workspace, endpoint_document, identity)
    response.status_code = 201 if is_new else 200
    return endpoint_json(made)


@router.patch("/{endpoint}")
@needs(Permission.WRITE)
def update(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    identity: Person,
    changes: Annotated[Any, Body()],
) -> dict[str, Any]:
    """Change single keys, such as `defaults`."""
    mapping = fields.mapping(changes, "the document of changes")
    return endpoint_json(endpoints.update(services, workspace, endpoint, mapping, identity))


@router.delete("/{endpoint}")
@needs(Permission.WRITE)
def delete(services: ServicesOf, workspace: str, endpoint: str, identity: Person) -> dict[str, Any]:
    """Delete a batch endpoint with its deployments; its jobs stay."""
    return endpoint_json(endpoints.delete(services.db, workspace, endpoint, identity))


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


@router.get("/{endpoint}/deployments")
@needs(Permission.READ)
def list_deployments(services: ServicesOf, workspace: str, endpoint: str) -> dict[str, Any]:
    there = deployments.list_in(services.db, workspace, endpoint)
    return {"value": [deployment_json(each) for each in there]}


@router.get("/{endpoint}/deployments/{deployment}")
@needs(Permission.READ)
def show_deployment(
    services: ServicesOf, workspace: str, endpoint: str, deployment: str
) -> dict[str, Any]:
    return deployment_json(deployments.get(services.db, workspace, endpoint, deployment))


@router.put("/{endpoint}/deployments/{deployment}")
@needs(Permission.WRITE)
def create_deployment(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    deployment: str,
    identity: Person,
    document: Annotated[Any, Body()],
    response: Response,
) -> dict[str, Any]:
    """Create a deployment, or replace the file of one."""
    deployment_document = fields.with_path_name(
        fields.mapping(document, "the deployment's document"), deployment
    )
    deployment_document.setdefault("endpoint_name", endpoint)
    accepted = deployments.create(services, workspace, endpoint, deployment_document, identity)
    response.status_code = 201 if accepted.is_new else 200
    return deployment_json(accepted.deployment, accepted.notices)


@router.patch("/{endpoint}/deployments/{deployment}")
@needs(Permission.WRITE)
def update_deployment(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    deployment: str,
    identity: Person,
    changes: Annotated[Any, Body()],
) -> dict[str, Any]:
    """Change single keys, such as `settings`."""
    mapping = fields.mapping(changes, "the document of changes")
    accepted = deployments.update(services, workspace, endpoint, deployment, mapping, identity)
    return deployment_json(accepted.deployment, accepted.notices)


@router.delete("/{endpoint}/deployments/{deployment}")
@needs(Permission.WRITE)
def delete_deployment(
    services: ServicesOf, workspace: str, endpoint: str, deployment: str, identity: Person
) -> dict[str, Any]:
    """Delete a deployment; its jobs stay."""
    deleted = deployments.delete(services.db, workspace, endpoint, deployment, identity)
    return deployment_json(deleted)
