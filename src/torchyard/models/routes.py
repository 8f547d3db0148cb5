"""HTTP: models."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from fastapi.responses import FileResponse

from torchyard.base import fields
from torchyard.base.clock import Clock, to_text
from torchyard.base.db import Database
from torchyard.data.datastores import Datastores
from torchyard.models import actions, registry
from torchyard.models.types import FindSource, Model
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission


def router(
    db: Database,
    clock: Clock,
    datastores: Datastores,
    find: FindSource,
) -> APIRouter:
    routes = APIRouter(
        prefix="/v1/workspaces/{workspace}/models", tags=["models"], route_class=GuardedRoute
    )

    @routes.post("", status_code=201)
    @needs(Permission.WRITE)
    def register(
        workspace: str, identity: Person, document: Annotated[Any, Body()]
    ) -> dict[str, Any]:
        asked = fields.mapping(document, "the model's document")
        made = actions.register(db, clock, datastores, find, workspace, asked, identity.user)
        return to_json(made)

    @routes.get("")
    @needs(Permission.READ)
    def list_models(
        workspace: str, identity: Person, name: str = "", archived: str = "false"
    ) -> dict[str, Any]:
        found = actions.list_in(db, workspace, name, fields.archived(archived))
        return {"value": [to_json(model) for model in found]}

    @routes.get("/{name}/versions/{version}")
    @needs(Permission.READ)
    def show(workspace: str, name: str, version: str, identity: Person) -> dict[str, Any]:
        found = actions.get(db, workspace, name, version)
        return {**to_json(found), "aliases": registry.aliases_of(db, found)}

    @routes.patch("/{name}/versions/{version}")
    @needs(Permission.WRITE)
    def update(
        workspace: str, name: str, version: str, identity: Person, changes: Annotated[Any, Body()]
    ) -> dict[str, Any]:
        asked = fields.mapping(changes, "the document of changes")
        return to_json(actions.update(db, clock, workspace, name, version, asked))

    @routes.post("/{name}/archive")
    @needs(Permission.WRITE)
    def archive(workspace: str, name: str, identity: Person) -> dict[str, Any]:
        return to_json(actions.archive(db, workspace, name))

    @routes.post("/{name}/restore")
    @needs(Permission.WRITE)
    def restore(workspace: str, name: str, identity: Person) -> dict[str, Any]:
        return to_json(actions.archive(db, workspace, name, archived=False))

    @routes.post("/{name}/versions/{version}/archive")
    @needs(Permission.WRITE)
    def archive_version(
        workspace: str, name: str, version: str, identity: Person
    ) -> dict[str, Any]:
        return to_json(actions.archive(db, workspace, name, version))

    @routes.post("/{name}/versions/{version}/restore")
    @needs(Permission.WRITE)
    def restore_version(
        workspace: str, name: str, version: str, identity: Person
    ) -> dict[str, Any]:
        return to_json(actions.archive(db, workspace, name, version, archived=False))

    @routes.get("/{name}/versions/{version}/files")
    @needs(Permission.READ)
    def list_files(workspace: str, name: str, version: str, identity: Person) -> dict[str, Any]:
        model = actions.get(db, workspace, name, version)
        return {"value": [dict(vars(file)) for file in model.files]}

    @routes.get("/{name}/versions/{version}/files/{path:path}")
    @needs(Permission.READ)
    def get_file(
        workspace: str, name: str, version: str, path: str, identity: Person
    ) -> FileResponse:
        model = actions.get(db, workspace, name, version)
        found = actions.file(datastores, model, path)
        return FileResponse(found, media_type="application/octet-stream")

    return routes


def to_json(model: Model) -> dict[str, Any]:
    body = {**vars(model), "files": [dict(vars(file)) for file in model.files]}
    body["created_at"] = to_text(model.created_at)
    body["updated_at"] = to_text(model.updated_at or model.created_at)
    return body
