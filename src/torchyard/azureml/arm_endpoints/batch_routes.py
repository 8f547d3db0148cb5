"""Batch endpoints, their deployments and jobs by Azure Resource Manager's protocol.

Owns: the routes of `MLClient.batch_endpoints` and `batch_deployments`.
Leaves: their JSON to batch_endpoint_documents.py, batch_deployment_documents.py and batch_jobs.py,
what they mean to batch_endpoints/actions/.
Always: a request that is refused leaves everything as it was; a change is done when it is answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from torchyard.azureml.arm import assets, resource_types
from torchyard.azureml.arm.resources import (
    PutResult,
    operation_headers,
    page_request,
    page_response,
    path_of_type,
    put_response,
    to_json,
)
from torchyard.azureml.arm_endpoints import (
    batch_deployment_documents,
    batch_endpoint_documents,
    batch_jobs,
    endpoint_documents,
)
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.context import Context
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.db import Database
from torchyard.base.errors import NotFound
from torchyard.batch_endpoints.actions import deployments, endpoints, invocations
from torchyard.batch_endpoints.actions.deployments import Accepted
from torchyard.batch_endpoints.records.types import BatchDeployment, BatchEndpoint
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces import audit
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

# As Azure documents it, and as azure-ai-ml spells it.
_REQUEST_ID = ("repeatability-request-id", "repeatability_request-id")

routes = RouteTable(path_of_type(batch_endpoint_documents.TYPE))


@routes.get("")
@needs(Permission.READ)
def list_endpoints(call: AzureCall, services: ServicesOf) -> JSONResponse:
    there = endpoints.list_in(services.db, call.workspace.name)
    rows = [(each.name, batch_endpoint_documents.to_resource(call, each)) for each in there]
    return page_response(call, assets.page_of(call, page_request(call), rows))


@routes.get("/{name}")
@needs(Permission.READ)
def get_endpoint(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    endpoint = endpoints.get(services.db, call.workspace.name, name)
    return JSONResponse(to_json(call, batch_endpoint_documents.to_resource(call, endpoint)))


@routes.put("/{name}")
@needs(Permission.WRITE)
def put_endpoint(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    document = batch_endpoint_documents.read(call, name)
    made, is_new = endpoints.create(services, call.workspace.name, document, call.identity)
    return _put_endpoint(call, made, is_new)


@routes.patch("/{name}")
@needs(Permission.WRITE)
def change_endpoint(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    changes = endpoint_documents.read_patch(call)
    made = endpoints.update(services, call.workspace.name, name, changes, call.identity)
    return _put_endpoint(call, made, False)


@routes.delete("/{name}")
@needs(Permission.WRITE)
def delete_endpoint(call: AzureCall, services: ServicesOf, name: str) -> Response:
    try:
        endpoints.delete(services.db, call.workspace.name, name, call.identity)
    except NotFound:
        return Response(status_code=204)
    return Response(status_code=200, headers=operation_headers(call))


@routes.post("/{name}/jobs")
@needs(Permission.WRITE)
def invoke(call: AzureCall, services: ServicesOf, request: Request, name: str) -> JSONResponse:
    """The scoring URI: the client posts what is to be scored."""
    chosen = request.headers.get("azureml-model-deployment", "")
    request_id = next((request.headers[key] for key in _REQUEST_ID if key in request.headers), "")
    document = batch_jobs.read(call, chosen, request_id)
    workspace = call.workspace.name
    job, is_new = invocations.invoke(services, workspace, name, document, call.identity)
    audit.note_about(request.scope, job=job.name)
    endpoint = endpoints.get(services.db, workspace, name)
    body = to_json(call, batch_jobs.to_resource(endpoint.name, job))
    return JSONResponse(body, 201 if is_new else 200)


@routes.get("/{name}/jobs")
@needs(Permission.READ)
def list_jobs(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    made = invocations.jobs_of(services.db, call.workspace.name, name)
    return _jobs(call, services.db, name, made)


@routes.get("/{name}/deployments")
@needs(Permission.READ)
def list_deployments(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    there = deployments.list_in(services.db, call.workspace.name, name)
    rows = [(each.name, batch_deployment_documents.to_resource(call, each)) for each in there]
    return page_response(call, assets.page_of(call, page_request(call), rows))


@routes.get("/{name}/deployments/{deployment}")
@needs(Permission.READ)
def get_deployment(
    call: AzureCall, services: ServicesOf, name: str, deployment: str
) -> JSONResponse:
    row = deployments.get(services.db, call.workspace.name, name, deployment)
    return JSONResponse(to_json(call, batch_deployment_documents.to_resource(call, row)))


@routes.put("/{name}/deployments/{deployment}")
@needs(Permission.WRITE)
def put_deployment(
    call: AzureCall, context: Context, services: ServicesOf, name: str, deployment: str
) -> JSONResponse:
    workspace = call.workspace.name
    endpoint = endpoints.get(services.db, workspace, name)
    before = _deployment(services.db, endpoint, deployment)
    document = batch_deployment_documents.read(
        call,
        endpoint.name,
        before.name if before is not None else deployment,
        before,
        resource_types.codes(context).snapshot,
    )
    accepted = deployments.create(services, workspace, endpoint.name, document, call.identity)
    return _put_deployment(call, accepted)


@routes.patch("/{name}/deployments/{deployment}")
@needs(Permission.WRITE)
def change_deployment(
    call: AzureCall, services: ServicesOf, name: str, deployment: str
) -> JSONResponse:
    changes = batch_deployment_documents.read_patch(call)
    workspace = call.workspace.name
    accepted = deployments.update(services, workspace, name, deployment, changes, call.identity)
    return _put_deployment(call, accepted)


@routes.delete("/{name}/deployments/{deployment}")
@needs(Permission.WRITE)
def delete_deployment(
    call: AzureCall, services: ServicesOf, name: str, deployment: str
) -> Response:
    try:
        deployments.delete(services.db, call.workspace.name, name, deployment, call.identity)
    except NotFound:
        return Response(status_code=204)
    return Response(status_code=200, headers=operation_headers(call))


@routes.get("/{name}/deployments/{deployment}/jobs")
@needs(Permission.READ)
def list_jobs_of_deployment(
    call: AzureCall, services: ServicesOf, name: str, deployment: str
) -> JSONResponse:
    made = invocations.jobs_of(services.db, call.workspace.name, name, deployment)
    return _jobs(call, services.db, name, made)


def _put_endpoint(call: Call, endpoint: BatchEndpoint, is_new: bool) -> JSONResponse:
    resource = batch_endpoint_documents.to_resource(call, endpoint)
    return put_response(call, PutResult(resource, is_new))


def _put_deployment(call: Call, accepted: Accepted) -> JSONResponse:
    resource = batch_deployment_documents.to_resource(call, accepted.deployment)
    # azure-ai-ml 1.12 reads the model of a response that ends the change twice, and spoils it.
    return put_response(call, PutResult(resource, accepted.is_new, slow=True))


def _deployment(db: Database, endpoint: BatchEndpoint, name: str) -> BatchDeployment | None:
    try:
        return deployments.get(db, endpoint.workspace, endpoint.name, name)
    except NotFound:
        return None


def _jobs(call: Call, db: Database, name: str, made: Sequence[Job]) -> JSONResponse:
    endpoint = endpoints.get(db, call.workspace.name, name)
    rows = [to_json(call, batch_jobs.to_resource(endpoint.name, job)) for job in made]
    return JSONResponse({"value": rows})
