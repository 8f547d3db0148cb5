"""HTTP: the routes that endpoints and deployments have, of whichever kind: online or batch.

Owns: the five verbs of both.
Leaves: what else a kind serves to its own routes.py; JSON to actions/to_json.py of each kind.
Always: a kind's router has all ten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic

from fastapi import APIRouter, Body, Response

from torchyard.base import fields
from torchyard.endpoints.actions.deployment_kind import D, DeploymentKind
from torchyard.endpoints.actions.endpoint_kind import E, EndpointKind
from torchyard.jobs.services import Services, ServicesOf
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

_ENDPOINT, _DEPLOYMENT = "/{endpoint}", "/{endpoint}/deployments/{deployment}"
Json = dict[str, Any]
_IF_NEW: dict[int | str, dict[str, Any]] = {201: {"description": "It is new"}}


@dataclass(frozen=True)
class KindRoutes(Generic[E, D]):
    """What the routes of a kind work with.

    Args:
        deployment_json: gets notices, too.
        texts: what OpenAPI says of each route that changes something, by its function.
    """

    endpoints: EndpointKind[E]
    deployments: DeploymentKind[E, D]
    endpoint_json: Callable[[Services, E], Json]
    deployment_json: Callable[[Services, D, Sequence[str]], Json]
    texts: Mapping[str, str]

    def router(self) -> APIRouter:
        router = APIRouter(
            prefix=f"/v1/workspaces/{{workspace}}/{self.endpoints.word}-endpoints",
            tags=[f"{self.endpoints.noun}s"],
            route_class=GuardedRoute,
        )
        _serve_endpoints(router, self)
        _serve_deployments(router, self)
        return router


def deployment_document(document: Any, endpoint: str, deployment: str) -> Json:
    """The document of a request, with the names of its path."""
    mapping = fields.mapping(document, "the deployment's document")
    named = fields.with_path_name(mapping, deployment)
    named.setdefault("endpoint_name", endpoint)
    return named


def _serve_endpoints(router: APIRouter, kind: KindRoutes[E, D]) -> None:
    endpoints, texts = kind.endpoints, kind.texts

    @router.get("")
    @needs(Permission.READ)
    def list_endpoints(services: ServicesOf, workspace: str) -> Json:
        there = endpoints.list_in(services.db, workspace)
        return {"value": [kind.endpoint_json(services, each) for each in there]}

    @router.get(_ENDPOINT)
    @needs(Permission.READ)
    def show(services: ServicesOf, workspace: str, endpoint: str) -> Json:
        return kind.endpoint_json(services, endpoints.get(services.db, workspace, endpoint))

    @router.put(_ENDPOINT, description=texts["create"], responses=_IF_NEW)
    @needs(Permission.WRITE)
    def create(
        services: ServicesOf,
        workspace: str,
        endpoint: str,
        identity: Person,
        document: Annotated[Any, Body()],
        response: Response,
    ) -> Json:
        mapping = fields.mapping(document, "the endpoint's document")
        named = fields.with_path_name(mapping, endpoint)
        made, is_new = endpoints.create(services, workspace, named, identity)
        response.status_code = 201 if is_new else 200
        return kind.endpoint_json(services, made)

    @router.patch(_ENDPOINT, description=texts["update"])
    @needs(Permission.WRITE)
    def update(
        services: ServicesOf,
        workspace: str,
        endpoint: str,
        identity: Person,
        changes: Annotated[Any, Body()],
    ) -> Json:
        mapping = fields.mapping(changes, "the document of changes")
        made = endpoints.update(services, workspace, endpoint, mapping, identity)
        return kind.endpoint_json(services, made)

    @router.delete(_ENDPOINT, description=texts["delete"])
    @needs(Permission.WRITE)
    def delete(services: ServicesOf, workspace: str, endpoint: str, identity: Person) -> Json:
        deleted = endpoints.delete(services, workspace, endpoint, identity)
        return kind.endpoint_json(services, deleted)


def _serve_deployments(router: APIRouter, kind: KindRoutes[E, D]) -> None:
    deployments, texts = kind.deployments, kind.texts

    @router.get("/{endpoint}/deployments")
    @needs(Permission.READ)
    def list_deployments(services: ServicesOf, workspace: str, endpoint: str) -> Json:
        there = deployments.list_in(services.db, workspace, endpoint)
        return {"value": [kind.deployment_json(services, each, ()) for each in there]}

    @router.get(_DEPLOYMENT)
    @needs(Permission.READ)
    def show_deployment(
        services: ServicesOf, workspace: str, endpoint: str, deployment: str
    ) -> Json:
        row = deployments.get(services.db, workspace, endpoint, deployment)
        return kind.deployment_json(services, row, ())

    @router.put(_DEPLOYMENT, description=texts["create_deployment"], responses=_IF_NEW)
    @needs(Permission.WRITE)
    def create_deployment(
        services: ServicesOf,
        workspace: str,
        endpoint: str,
        deployment: str,
        identity: Person,
        document: Annotated[Any, Body()],
        response: Response,
    ) -> Json:
        named = deployment_document(document, endpoint, deployment)
        accepted = deployments.create(services, workspace, endpoint, named, identity)
        response.status_code = 201 if accepted.is_new else 200
        return kind.deployment_json(services, accepted.deployment, accepted.notices)

    @router.patch(_DEPLOYMENT, description=texts["update_deployment"])
    @needs(Permission.WRITE)
    def update_deployment(
        services: ServicesOf,
        workspace: str,
        endpoint: str,
        deployment: str,
        identity: Person,
        changes: Annotated[Any, Body()],
    ) -> Json:
        mapping = fields.mapping(changes, "the document of changes")
        accepted = deployments.update(services, workspace, endpoint, deployment, mapping, identity)
        return kind.deployment_json(services, accepted.deployment, accepted.notices)

    @router.delete(_DEPLOYMENT, description=texts["delete_deployment"])
    @needs(Permission.WRITE)
    def delete_deployment(
        services: ServicesOf, workspace: str, endpoint: str, deployment: str, identity: Person
    ) -> Json:
        deleted = deployments.delete(services, workspace, endpoint, deployment, identity)
        return kind.deployment_json(services, deleted, ())
