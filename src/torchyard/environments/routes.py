"""The room over HTTP.

Owns: routes below a workspace's `/environments`.
Leaves: what they answer to to_json.py, what they do to assets.py and requested_builds.py.
Always: nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.base import fields
from torchyard.base.clock import Clock
from torchyard.environments import assets, copying, to_json
from torchyard.environments.requested_builds import RequestedBuilds
from torchyard.environments.services import Environments
from torchyard.workspaces.access import Person


def router(
    services: Environments,
    builds: RequestedBuilds,
    clock: Clock,
    asked_for: Callable[[str], Collection[str]],
) -> APIRouter:
    """
    Args:
        asked_for: hashes of the environments that a workspace's jobs asked for; builds are shared
            by all workspaces, and what one asked for is not another's to see.
    """
    routes = APIRouter(prefix="/v1/workspaces/{workspace}/environments", tags=["environments"])
    _asset_routes(routes, services, clock, asked_for)
    _build_routes(routes, services, builds)
    for verb, archived in (("archive", True), ("restore", False)):
        _archive_routes(routes, services, verb, archived)
    return routes


def _asset_routes(
    routes: APIRouter,
    services: Environments,
    clock: Clock,
    asked_for: Callable[[str], Collection[str]],
) -> None:
    @routes.get("")
    def list_environments(
        workspace: str, identity: Person, name: str = "", archived: str = ""
    ) -> dict[str, Any]:
        hashes = asked_for(workspace)
        return {
            "value": to_json.every(services, workspace, hashes, name, fields.archived(archived))
        }

    @routes.post("", status_code=201)
    def create(
        workspace: str, identity: Person, document: Annotated[Any, Body()]
    ) -> dict[str, Any]:
        asked = assets.read_document(fields.mapping(document, "the environment's document"))
        made = assets.register(
            services.db,
            clock,
            workspace,
            asked,
            identity.user,
            lambda found: services.resolver.resolve(found, workspace),
        )
        return to_json.one(services, workspace, made.name, made.version)

    @routes.post("/definition")
    def definition(
        workspace: str, identity: Person, environment: Annotated[str, Body(embed=True)]
    ) -> dict[str, Any]:
        return vars(copying.named(services, workspace, environment))

    @routes.post("/clone", status_code=201)
    def clone(
        workspace: str,
        identity: Person,
        environment: Annotated[str, Body(embed=True)],
        name: Annotated[str, Body(embed=True)],
    ) -> dict[str, Any]:
        source = copying.named(services, workspace, environment)
        made = copying.clone(services, clock, workspace, source, name, identity.user)
        found = to_json.one(services, workspace, made.name, made.version)
        return {**found, "notices": [*source.notices, *found["notices"]]}

    @routes.get("/{name}/versions/{version}")
    def show(workspace: str, name: str, version: str, identity: Person) -> dict[str, Any]:
        return to_json.one(services, workspace, name, version)


def _build_routes(routes: APIRouter, services: Environments, builds: RequestedBuilds) -> None:
    @routes.post("/resolve")
    def resolve(
        workspace: str, identity: Person, environment: Annotated[Any, Body(embed=True)]
    ) -> dict[str, Any]:
        return to_json.resolved(services, workspace, environment)

    @routes.post("/build")
    def build(
        workspace: str, identity: Person, environment: Annotated[Any, Body(embed=True)]
    ) -> dict[str, Any]:
        return builds.begin(services.resolver.resolve(environment, workspace))

    @routes.post("/use")
    def use(
        workspace: str, identity: Person, environment: Annotated[Any, Body(embed=True)]
    ) -> dict[str, Any]:
        return copying.in_use(services, workspace, environment)

    @routes.post("/export")
    def export(
        workspace: str,
        identity: Person,
        environment: Annotated[Any, Body(embed=True)],
        format: Annotated[str, Body(embed=True)],
    ) -> dict[str, Any]:
        return copying.exported(services, workspace, environment, format)

    @routes.get("/builds/{hash}")
    def follow(workspace: str, hash: str, identity: Person, offset: int = 0) -> dict[str, Any]:
        return builds.show(hash, offset)


def _archive_routes(routes: APIRouter, services: Environments, verb: str, archived: bool) -> None:
    @routes.post(f"/{{name}}/{verb}", name=f"{verb}_environment")
    def all_versions(workspace: str, name: str, identity: Person) -> dict[str, Any]:
        return to_json.asset_to_json(
            assets.archive(services.db, workspace, name, archived=archived)
        )

    @routes.post(f"/{{name}}/versions/{{version}}/{verb}", name=f"{verb}_environment_version")
    def one_version(workspace: str, name: str, version: str, identity: Person) -> dict[str, Any]:
        exact = assets.get(services.db, workspace, name, version).version
        return to_json.asset_to_json(assets.archive(services.db, workspace, name, exact, archived))
