"""Online endpoints and their deployments by Azure Resource Manager's protocol.

Owns: the routes of `MLClient.online_endpoints` and `online_deployments`.
Leaves: their JSON to endpoint_documents.py and deployment_documents.py, waiting to operations.py,
what they mean to endpoints/actions/.
Always: a request that is refused leaves everything as it was; requests to models do not come here,
but to the endpoint's router.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi.responses import JSONResponse, Response

from torchyard.azureml.arm import assets, resource_types
from torchyard.azureml.arm.resources import (
    page_request,
    page_response,
    path_of_type,
    to_json,
)
from torchyard.azureml.arm_endpoints import deployment_documents, endpoint_documents, operations
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.context import Context
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.base import fields
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.base.fields import described
from torchyard.endpoints.actions import credentials, deployments, endpoints
from torchyard.endpoints.records.types import Deployment, Endpoint
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_LINES = 500
_CONTAINERS = ("inferenceserver", "storageinitializer", "modeldatacollector")

routes = RouteTable(path_of_type(endpoint_documents.TYPE))


@routes.get("")
@needs(Permission.READ)
def list_endpoints(call: AzureCall, services: ServicesOf) -> JSONResponse:
    there = endpoints.list_in(services, call.workspace.name)
    name = assets.query_value(call, "name")
    rows = [
        (each.name, endpoint_documents.to_resource(services.home, call, each))
        for each in there
        if not name or each.name.lower() == name.lower()
    ]
    return page_response(call, assets.page_of(call, page_request(call), rows))


@routes.get("/{name}")
@needs(Permission.READ)
def get_endpoint(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    return JSONResponse(_endpoint_json(services.home, call, _endpoint(services.db, call, name)))


@routes.put("/{name}")
@needs(Permission.WRITE)
def put_endpoint(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    document = endpoint_documents.read(call, name)
    made, is_new = endpoints.create(services, call.workspace.name, document, call.identity)
    headers = operations.headers(call, made.name, operations.put_of(made))
    return JSONResponse(_endpoint_json(services.home, call, made), 201 if is_new else 200, headers)


@routes.patch("/{name}")
@needs(Permission.WRITE)
def change_endpoint(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    changes = endpoint_documents.read_online_patch(call)
    made = endpoints.update(services, call.workspace.name, name, changes, call.identity)
    headers = operations.headers(call, made.name, operations.put_of(made))
    return JSONResponse(_endpoint_json(services.home, call, made), 200, headers)


@routes.delete("/{name}")
@needs(Permission.WRITE)
def delete_endpoint(call: AzureCall, services: ServicesOf, name: str) -> Response:
    try:
        deleted = endpoints.delete(services, call.workspace.name, name, call.identity)
    except NotFound:
        return Response(status_code=204)
    id = operations.deletion_of(deleted)
    return Response(status_code=202, headers=operations.headers(call, deleted.name, id, True))


@routes.post("/{name}/listkeys")
@needs(Permission.WRITE)
def list_keys(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    keys = credentials.keys(services.db, call.workspace.name, name)
    return JSONResponse({"primaryKey": keys.primary, "secondaryKey": keys.secondary})


@routes.post("/{name}/regeneratekeys")
@needs(Permission.WRITE)
def regenerate_keys(call: AzureCall, services: ServicesOf, name: str) -> Response:
    """The client sends the key that is to be replaced; another value would be one it chose."""
    workspace = call.workspace.name
    kind = fields.text(call.document, "keyType").lower()
    value = fields.text(call.document, "keyValue")
    keys = credentials.keys(services.db, workspace, name)
    if value and value not in (keys.primary, keys.secondary):
        raise NotServed(
            "an endpoint with a key that its client chose is not served",
            "leave `keyValue` out: the new key is drawn",
            at=["keyValue"],
        )
    credentials.regenerate(services, workspace, name, kind, call.identity)
    return Response(status_code=200)


@routes.post("/{name}/token")
@needs(Permission.WRITE)
def make_token(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    token = credentials.token(services, call.workspace.name, name, call.identity)
    return JSONResponse(
        {
            "accessToken": token.text,
            "tokenType": "Bearer",
            "expiryTimeUtc": int(token.ends_at.timestamp()),
            "refreshAfterTimeUtc": int(token.refresh_after.timestamp()),
        }
    )


@routes.get("/{name}/operationsstatus/{id}")
@needs(Permission.READ)
def get_operation(call: AzureCall, services: ServicesOf, name: str, id: str) -> JSONResponse:
    outcome = operations.outcome(services, call.workspace.name, name, id)
    return JSONResponse(operations.status_json(call, name, id, outcome), 200, operations.POLL)


@routes.get("/{name}/operationresults/{id}")
@needs(Permission.READ)
def get_result(call: AzureCall, services: ServicesOf, name: str, id: str) -> Response:
    outcome = operations.outcome(services, call.workspace.name, name, id)
    return operations.result(call, name, id, outcome)


@routes.get("/{name}/deployments")
@needs(Permission.READ)
def list_deployments(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    there = deployments.list_in(services, call.workspace.name, name)
    rows = [(each.name, deployment_documents.to_resource(call, each)) for each in there]
    return page_response(call, assets.page_of(call, page_request(call), rows))


@routes.get("/{name}/deployments/{deployment}")
@needs(Permission.READ)
def get_deployment(
    call: AzureCall, services: ServicesOf, name: str, deployment: str
) -> JSONResponse:
    row = deployments.get(services.db, call.workspace.name, name, deployment)
    return JSONResponse(_deployment_json(call, row))


@routes.put("/{name}/deployments/{deployment}")
@needs(Permission.WRITE)
def put_deployment(
    call: AzureCall, context: Context, services: ServicesOf, name: str, deployment: str
) -> JSONResponse:
    workspace = call.workspace.name
    endpoint = _endpoint(services.db, call, name)
    before = _deployment(services.db, endpoint, deployment)
    document = deployment_documents.read(
        call,
        endpoint.name,
        before.name if before is not None else deployment,
        before,
        resource_types.codes(context).snapshot,
    )
    accepted = deployments.create(services, workspace, endpoint.name, document, call.identity)
    return _deployed(call, accepted.deployment, 201 if accepted.is_new else 200)


@routes.patch("/{name}/deployments/{deployment}")
@needs(Permission.WRITE)
def change_deployment(
    call: AzureCall, services: ServicesOf, name: str, deployment: str
) -> JSONResponse:
    changes = deployment_documents.read_patch(call)
    accepted = deployments.update(
        services, call.workspace.name, name, deployment, changes, call.identity
    )
    return _deployed(call, accepted.deployment, 200)


@routes.delete("/{name}/deployments/{deployment}")
@needs(Permission.WRITE)
def delete_deployment(
    call: AzureCall, services: ServicesOf, name: str, deployment: str
) -> Response:
    workspace = call.workspace.name
    try:
        deleted = deployments.delete(services, workspace, name, deployment, call.identity)
    except NotFound:
        return Response(status_code=204)
    id = operations.deletion_of_deployment(deleted)
    return Response(status_code=202, headers=operations.headers(call, deleted.endpoint, id, True))


@routes.post("/{name}/deployments/{deployment}/getlogs")
@needs(Permission.READ)
def get_logs(call: AzureCall, services: ServicesOf, name: str, deployment: str) -> JSONResponse:
    """Of an instance that answers; files are copied by the same program, into the same log."""
    container = fields.text(call.document, "containerType").lower()
    if container and container not in _CONTAINERS:
        raise InvalidInput(
            f"`{container[:40]}` is not a type of container",
            "use `InferenceServer`",
            at=["containerType"],
        )
    tail = call.document.get("tail")
    if tail is not None and (isinstance(tail, bool) or not isinstance(tail, int)):
        raise InvalidInput(f"`tail` must be a whole number, not {described(tail)}", at=["tail"])
    lines = _LINES if tail is None else tail
    text = deployments.logs(services, call.workspace.name, name, deployment, lines, "")
    return JSONResponse({"content": text})


@routes.get("/{name}/deployments/{deployment}/skus")
@needs(Permission.READ)
def list_skus(call: AzureCall, services: ServicesOf, name: str, deployment: str) -> JSONResponse:
    """The cluster decides what an instance runs on; its number can be changed."""
    deployments.get(services.db, call.workspace.name, name, deployment)
    sku = {"resourceType": "Microsoft.MachineLearning.Services/onlineEndpoints/deployments"}
    return JSONResponse({"value": [{**sku, "sku": {"name": "Default"}}]})


def _deployed(call: Call, deployment: Deployment, status: int) -> JSONResponse:
    id = operations.put_of_deployment(deployment)
    headers = operations.headers(call, deployment.endpoint, id)
    return JSONResponse(_deployment_json(call, deployment), status, headers)


def _endpoint_json(home: Path, call: Call, endpoint: Endpoint) -> dict[str, Any]:
    return to_json(call, endpoint_documents.to_resource(home, call, endpoint))


def _deployment_json(call: Call, deployment: Deployment) -> dict[str, Any]:
    return to_json(call, deployment_documents.to_resource(call, deployment))


def _endpoint(db: Database, call: Call, name: str) -> Endpoint:
    return endpoints.get(db, call.workspace.name, name)


def _deployment(db: Database, endpoint: Endpoint, name: str) -> Deployment | None:
    try:
        return deployments.get(db, endpoint.workspace, endpoint.name, name)
    except NotFound:
        return None
