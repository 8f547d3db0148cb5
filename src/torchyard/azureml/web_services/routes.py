"""SDK v1's model management: web services.

Owns: the routes of `Model.deploy`, `Webservice` and its operations.
Leaves: what they mean to actions.py, their JSON to views.py, models and assets to sdk_v1/.
Always: what is refused is refused by `validate` already, whose message the client shows alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse, Response

from torchyard.azureml.common.calls import AzureCall, Call, object_at
from torchyard.azureml.common.errors import NotServed, envelope
from torchyard.azureml.common.routing import RouteTable
from torchyard.azureml.sdk_v1.assets import ModelRoute
from torchyard.azureml.web_services import actions, views
from torchyard.base.errors import NotFound, TorchyardError
from torchyard.endpoints.actions import credentials, deployments, endpoints
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_LINES, _MOST_LINES = 5000, 100_000

routes = RouteTable("/modelmanagement", ModelRoute)


@routes.get("/services")
@needs(Permission.READ)
def list_all(call: AzureCall, services: ServicesOf) -> JSONResponse:
    query = {key.lower(): value for key, value in call.query.items()}
    there = actions.list_in(services, call.workspace.name, query)
    # No `nextLink`: the client follows one that is null.
    return JSONResponse({"value": [views.service_json(services, call, each) for each in there]})


@routes.post("/services")
@needs(Permission.WRITE)
def deploy(call: AzureCall, services: ServicesOf) -> JSONResponse:
    deployment = actions.deploy(services, call)
    deployed = actions.find(services, call.workspace.name, deployment.name)
    id = views.operation_id(views.CREATE, deployed.endpoint, deployment)
    return _accepted(call, id, views.service_json(services, call, deployed))


@routes.post("/services/validate/name/{name}")
@needs(Permission.WRITE)
def validate_name(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    try:
        actions.refuse_taken(services.db, call.workspace.name, name)
    except TorchyardError as error:
        return JSONResponse(envelope(error))
    return JSONResponse({})


# What a service asks for is checked when an instance is placed, which waits if it has to.
@routes.post("/services/validate/resource")
@needs(Permission.WRITE)
def validate_resources(call: AzureCall) -> JSONResponse:
    return JSONResponse({})


@routes.post("/services/validate")
@needs(Permission.WRITE)
def validate(call: AzureCall, services: ServicesOf) -> JSONResponse:
    try:
        _validate(services, call, call.document)
    except TorchyardError as error:
        return JSONResponse(envelope(error))
    return JSONResponse({})


@routes.get("/services/{name}")
@needs(Permission.READ)
def get(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    deployed = actions.find(services, call.workspace.name, name)
    return JSONResponse(views.service_json(services, call, deployed))


@routes.patch("/services/{name}")
@needs(Permission.WRITE)
def change(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    deployed = actions.change(services, call, name)
    id = views.operation_id(views.CREATE, deployed.endpoint, deployed.deployment)
    document = views.service_json(services, call, deployed)
    return JSONResponse({**document, "operationId": id})


@routes.delete("/services/{name}")
@needs(Permission.WRITE)
def delete(call: AzureCall, services: ServicesOf, name: str) -> Response:
    workspace = call.workspace.name
    try:
        deployed = actions.find(services, workspace, name)
    except NotFound:
        return Response(status_code=204)
    endpoints.delete(services, workspace, deployed.endpoint.name, call.identity)
    return _accepted(call, views.operation_id(views.DELETE, deployed.endpoint), {})


@routes.post("/services/{name}/listkeys")
@needs(Permission.WRITE)
def list_keys(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    deployed = actions.find(services, call.workspace.name, name)
    keys = credentials.keys(services.db, call.workspace.name, deployed.endpoint.name)
    return JSONResponse({"primaryKey": keys.primary, "secondaryKey": keys.secondary})


@routes.post("/services/{name}/regenerateKeys")
@needs(Permission.WRITE)
def regenerate_keys(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    deployed = actions.find(services, call.workspace.name, name)
    actions.regenerate(services, call, deployed.endpoint.name)
    return _accepted(call, views.operation_id(views.KEYS, deployed.endpoint), {})


@routes.post("/services/{name}/token")
@needs(Permission.WRITE)
def make_token(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    deployed = actions.find(services, call.workspace.name, name)
    token = credentials.token(services, call.workspace.name, deployed.endpoint.name, call.identity)
    return JSONResponse(
        {
            "accessToken": token.text,
            "tokenType": "Bearer",
            "refreshAfter": int(token.refresh_after.timestamp()),
            "expiryOn": int(token.ends_at.timestamp()),
        }
    )


@routes.get("/services/{name}/logs")
@needs(Permission.READ)
def get_logs(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    deployed = actions.find(services, call.workspace.name, name)
    text = ""
    if deployed.deployment is not None:
        lines = max(1, min(_number(call.query.get("tail"), _LINES), _MOST_LINES))
        there = (call.workspace.name, deployed.endpoint.name, deployed.deployment.name)
        text = deployments.logs(services, *there, lines, "")
    return JSONResponse({"content": text})


@routes.every_method("/services/{name}/{path:path}")
@needs(Permission.READ)
def refuse_others(call: AzureCall, name: str, path: str) -> JSONResponse:
    raise NotServed(
        f"`{path[:100]}` of a web service is not served", "see docs/guides/azure-ml-code.md"
    )


@routes.get("/operations/{id}")
@needs(Permission.READ)
def get_operation(call: AzureCall, services: ServicesOf, id: str) -> JSONResponse:
    kind, name, number = views.parse_operation(id)
    deployed = _existing(services, call, name)
    if kind == views.KEYS:
        return JSONResponse(views.keys_json(id))
    if kind == views.DELETE:
        endpoint = deployed.endpoint if deployed is not None else None
        return JSONResponse(views.deletion_json(id, number, endpoint))
    offset = _number(call.query.get("offset"), 0)
    return JSONResponse(views.creation_json(id, deployed, offset))


def _validate(services: RecordServices, call: Call, body: Mapping[str, Any]) -> None:
    kind, name = body.get("type"), str(body.get("serviceName") or "")
    if kind == "Create":
        actions.read(object_at(body, "createRequest"))
    elif kind == "Update":
        deployed = actions.find(services, call.workspace.name, name)
        actions.check_change(deployed, body.get("updateRequest"))


def _existing(services: RecordServices, call: Call, name: str) -> actions.Deployed | None:
    try:
        return actions.find(services, call.workspace.name, name)
    except NotFound:
        return None


def _accepted(call: Call, id: str, body: Mapping[str, Any]) -> JSONResponse:
    where = f"{call.base}/modelmanagement/v1.0{call.workspace_id}/operations/{id}"
    return JSONResponse(dict(body), 202, {"Operation-Location": where})


def _number(text: str | None, default: int) -> int:
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if is_number and text is not None else default
