"""Batch endpoints, their deployments and jobs by Azure Resource Manager's protocol.

Owns: the routes of `MLClient.batch_endpoints` and `batch_deployments`.
Leaves: the verbs that online endpoints have, too, to kind_routes.py, their JSON to
batch_endpoint_documents.py, batch_deployment_documents.py and batch_jobs.py, what they mean to
batch_endpoints/actions/.
Always: a request that is refused leaves everything as it was; a change is done when it is answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from torchyard.azureml.arm.resources import operation_headers, to_json
from torchyard.azureml.arm_endpoints import (
    batch_deployment_documents,
    batch_endpoint_documents,
    batch_jobs,
    endpoint_documents,
)
from torchyard.azureml.arm_endpoints.kind_routes import ArmKind
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.base.db import Database
from torchyard.batch_endpoints.actions import deployments, endpoints, invocations
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces import audit
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

# As Azure documents it, and as azure-ai-ml spells it.
_REQUEST_ID = ("repeatability-request-id", "repeatability_request-id")


def _deleted(call: Call, _: object) -> Response:
    return Response(status_code=200, headers=operation_headers(call))


routes = ArmKind(
    type=batch_endpoint_documents.TYPE,
    endpoints=endpoints.BATCH,
    deployments=deployments.BATCH_DEPLOYMENTS,
    read=batch_endpoint_documents.read,
    read_patch=endpoint_documents.read_patch,
    to_resource=lambda _, call, row: batch_endpoint_documents.to_resource(call, row),
    put_headers=lambda call, _: operation_headers(call),
    deleted=_deleted,
    read_deployment=batch_deployment_documents.read,
    read_deployment_patch=batch_deployment_documents.read_patch,
    deployment_to_resource=batch_deployment_documents.to_resource,
    # azure-ai-ml 1.12 reads the model of a response that ends the change twice, and spoils it.
    put_deployment_headers=lambda call, _: operation_headers(call, slow=True),
    deployment_deleted=_deleted,
).routes()


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


@routes.get("/{name}/deployments/{deployment}/jobs")
@needs(Permission.READ)
def list_jobs_of_deployment(
    call: AzureCall, services: ServicesOf, name: str, deployment: str
) -> JSONResponse:
    made = invocations.jobs_of(services.db, call.workspace.name, name, deployment)
    return _jobs(call, services.db, name, made)


def _jobs(call: Call, db: Database, name: str, made: Sequence[Job]) -> JSONResponse:
    endpoint = endpoints.get(db, call.workspace.name, name)
    rows = [to_json(call, batch_jobs.to_resource(endpoint.name, job)) for job in made]
    return JSONResponse({"value": rows})
