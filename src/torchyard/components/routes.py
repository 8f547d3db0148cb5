"""HTTP: components."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.base import fields
from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.base.clock import Clock, to_text
from torchyard.base.db import Database
from torchyard.base.errors import InvalidSpec
from torchyard.components import actions
from torchyard.components.types import Component
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission


def router(db: Database, clock: Clock, blobs: Blobs) -> APIRouter:
    routes = APIRouter(
        prefix="/v1/workspaces/{workspace}/components",
        tags=["components"],
        route_class=GuardedRoute,
    )

    @routes.post("", status_code=201)
    @needs(Permission.WRITE)
    def create(
        workspace: str, identity: Person, document: Annotated[Any, Body()]
    ) -> dict[str, Any]:
        asked = fields.mapping(document, "the component's document")
        _code_exists(blobs, asked.get("code"))
        made, _ = actions.register(db, clock, workspace, asked, identity.user)
        return to_json(made)

    @routes.get("")
    @needs(Permission.READ)
    def list_components(
        workspace: str, identity: Person, name: str = "", archived: str = ""
    ) -> dict[str, Any]:
        found = actions.list_in(db, workspace, name, fields.archived(archived))
        return {"value": [to_json(one) for one in found]}

    @routes.get("/{name}/versions/{version}")
    @needs(Permission.READ)
    def show(workspace: str, name: str, version: str, identity: Person) -> dict[str, Any]:
        return to_json(actions.get(db, workspace, name, version))

    for verb, archived in (("archive", True), ("restore", False)):
        _archive_routes(routes, db, verb, archived)
    return routes


def _archive_routes(routes: APIRouter, db: Database, verb: str, archived: bool) -> None:
    @routes.post(f"/{{name}}/{verb}", name=f"{verb}_component")
    @needs(Permission.WRITE)
    def all_versions(workspace: str, name: str, identity: Person) -> dict[str, Any]:
        return to_json(actions.archive(db, workspace, name, archived=archived))

    @routes.post(f"/{{name}}/versions/{{version}}/{verb}", name=f"{verb}_component_version")
    @needs(Permission.WRITE)
    def one_version(workspace: str, name: str, version: str, identity: Person) -> dict[str, Any]:
        exact = actions.get(db, workspace, name, version).version
        return to_json(actions.archive(db, workspace, name, exact, archived))


def to_json(component: Component) -> dict[str, Any]:
    said = {key: value for key, value in vars(component).items() if key != "definition"}
    return {**component.definition, **said, "created_at": to_text(component.created_at)}


def _code_exists(blobs: Blobs, code: Any) -> None:
    if code is None:
        return
    if not isinstance(code, str) or not code.startswith(SNAPSHOT_PREFIX):
        raise InvalidSpec(
            f"`{code}` is not served as `code`", "name a folder beside the file", at=["code"]
        )
    blobs.snapshot(code.removeprefix(SNAPSHOT_PREFIX))
