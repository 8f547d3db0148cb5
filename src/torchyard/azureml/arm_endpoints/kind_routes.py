"""The verbs of endpoints and deployments by Azure Resource Manager's protocol, online and batch.

Owns: the routes that both kinds have.
Leaves: what else a kind serves to routes.py and batch_routes.py, JSON to the documents of each
kind, what the verbs mean to endpoints/actions/.
Always: a request that is refused leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from fastapi.responses import JSONResponse, Response

from torchyard.azureml.arm import assets, resource_types
from torchyard.azureml.arm.resources import (
    Resource,
    page_request,
    page_response,
    path_of_type,
    to_json,
)
from torchyard.azureml.arm_endpoints.references import SnapshotOf
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.context import Context
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.errors import NotFound
from torchyard.endpoints.actions.deployment_kind import D, DeploymentKind
from torchyard.endpoints.actions.endpoint_kind import E, EndpointKind
from torchyard.jobs.services import Services, ServicesOf
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_ENDPOINT, _DEPLOYMENT = "/{name}", "/{name}/deployments/{deployment}"
Json = dict[str, Any]
Headers = dict[str, str]


@dataclass(frozen=True)
class ArmKind(Generic[E, D]):
    """How clients speak of a kind: its documents, both ways, and what says how far a change is.

    `is_named` says that clients may list the endpoint of a name.
    """

    type: str
    endpoints: EndpointKind[E]
    deployments: DeploymentKind[E, D]
    read: Callable[[Call, str], Json]
    read_patch: Callable[[Call], Json]
    to_resource: Callable[[Services, Call, E], Resource]
    put_headers: Callable[[Call, E], Headers]
    deleted: Callable[[Call, E], Response]
    read_deployment: Callable[[Call, str, str, D | None, SnapshotOf], Json]
    read_deployment_patch: Callable[[Call], Json]
    deployment_to_resource: Callable[[Call, D], Resource]
    put_deployment_headers: Callable[[Call, D], Headers]
    deployment_deleted: Callable[[Call, D], Response]
    is_named: bool = False

    def routes(self) -> RouteTable:
        routes = RouteTable(path_of_type(self.type))
        _serve_endpoints(routes, self)
        _serve_deployments(routes, self)
        return routes


def _serve_endpoints(routes: RouteTable, kind: ArmKind[E, D]) -> None:
    endpoints = kind.endpoints

    @routes.get("")
    @needs(Permission.READ)
    def list_endpoints(call: AzureCall, services: ServicesOf) -> JSONResponse:
        there = endpoints.list_in(services.db, call.workspace.name)
        name = assets.query_value(call, "name") if kind.is_named else ""
        rows = [
            (each.name, kind.to_resource(services, call, each))
            for each in there
            if not name or each.name.lower() == name.lower()
        ]
        return page_response(call, assets.page_of(call, page_request(call), rows))

    @routes.get(_ENDPOINT)
    @needs(Permission.READ)
    def get_endpoint(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
        endpoint = endpoints.get(services.db, call.workspace.name, name)
        return JSONResponse(to_json(call, kind.to_resource(services, call, endpoint)))

    @routes.put(_ENDPOINT)
    @needs(Permission.WRITE)
    def put_endpoint(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
        document, workspace = kind.read(call, name), call.workspace.name
        made, is_new = endpoints.create(services, workspace, document, call.identity)
        body = to_json(call, kind.to_resource(services, call, made))
        return JSONResponse(body, 201 if is_new else 200, kind.put_headers(call, made))

    @routes.patch(_ENDPOINT)
    @needs(Permission.WRITE)
    def change_endpoint(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
        changes, workspace = kind.read_patch(call), call.workspace.name
        made = endpoints.update(services, workspace, name, changes, call.identity)
        body = to_json(call, kind.to_resource(services, call, made))
        return JSONResponse(body, 200, kind.put_headers(call, made))

    @routes.delete(_ENDPOINT)
    @needs(Permission.WRITE)
    def delete_endpoint(call: AzureCall, services: ServicesOf, name: str) -> Response:
        try:
            deleted = endpoints.delete(services, call.workspace.name, name, call.identity)
        except NotFound:
            return Response(status_code=204)
        return kind.deleted(call, deleted)


def _serve_deployments(routes: RouteTable, kind: ArmKind[E, D]) -> None:
    deployments = kind.deployments

    def deployed(call: Call, deployment: D, status: int) -> JSONResponse:
        body = to_json(call, kind.deployment_to_resource(call, deployment))
        return JSONResponse(body, status, kind.put_deployment_headers(call, deployment))

    @routes.get("/{name}/deployments")
    @needs(Permission.READ)
    def list_deployments(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
        there = deployments.list_in(services.db, call.workspace.name, name)
        rows = [(each.name, kind.deployment_to_resource(call, each)) for each in there]
        return page_response(call, assets.page_of(call, page_request(call), rows))

    @routes.get(_DEPLOYMENT)
    @needs(Permission.READ)
    def get_deployment(
        call: AzureCall, services: ServicesOf, name: str, deployment: str
    ) -> JSONResponse:
        row = deployments.get(services.db, call.workspace.name, name, deployment)
        return JSONResponse(to_json(call, kind.deployment_to_resource(call, row)))

    @routes.put(_DEPLOYMENT)
    @needs(Permission.WRITE)
    def put_deployment(
        call: AzureCall, context: Context, services: ServicesOf, name: str, deployment: str
    ) -> JSONResponse:
        workspace = call.workspace.name
        endpoint = kind.endpoints.get(services.db, workspace, name)
        before = deployments.named(services.db, endpoint, deployment)
        own_name = deployment if before is None else before.name
        snapshot_of = resource_types.codes(context).snapshot
        document = kind.read_deployment(call, endpoint.name, own_name, before, snapshot_of)
        accepted = deployments.create(services, workspace, endpoint.name, document, call.identity)
        return deployed(call, accepted.deployment, 201 if accepted.is_new else 200)

    @routes.patch(_DEPLOYMENT)
    @needs(Permission.WRITE)
    def change_deployment(
        call: AzureCall, services: ServicesOf, name: str, deployment: str
    ) -> JSONResponse:
        changes, workspace = kind.read_deployment_patch(call), call.workspace.name
        accepted = deployments.update(services, workspace, name, deployment, changes, call.identity)
        return deployed(call, accepted.deployment, 200)

    @routes.delete(_DEPLOYMENT)
    @needs(Permission.WRITE)
    def delete_deployment(
        call: AzureCall, services: ServicesOf, name: str, deployment: str
    ) -> Response:
        workspace = call.workspace.name
        try:
            deleted = deployments.delete(services, workspace, name, deployment, call.identity)
        except NotFound:
            return Response(status_code=204)
        return kind.deployment_deleted(call, deleted)
