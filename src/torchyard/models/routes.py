"""HTTP: models."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends
from fastapi.responses import FileResponse

from torchyard.base import fields
from torchyard.base.clock import to_text
from torchyard.base.dependencies import ClockOf, DatabaseOf, from_state
from torchyard.data.deletion import add_delete_routes
from torchyard.data.dependencies import DatastoresOf
from torchyard.models import actions, registry
from torchyard.models.types import FindSource, Model
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

FindSourceOf = Annotated[FindSource, Depends(from_state("find_model"))]

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/models", tags=["models"], route_class=GuardedRoute
)


@router.post("", status_code=201)
@needs(Permission.WRITE)
def register(
    db: DatabaseOf,
    clock: ClockOf,
    datastores: DatastoresOf,
    find: FindSourceOf,
    workspace: str,
    identity: Person,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    mapping = fields.mapping(document, "the model's document")
    made = actions.register(db, clock, datastores, find, workspace, mapping, identity.user)
    return to_json(made)


@router.get("")
@needs(Permission.READ)
def list_models(
    db: DatabaseOf, workspace: str, name: str = "", archived: str = "false"
) -> dict[str, Any]:
    models = actions.list_in(db, workspace, name, fields.archived(archived))
    return {"value": [to_json(model) for model in models]}


@router.get("/{name}/versions/{version}")
@needs(Permission.READ)
def show(db: DatabaseOf, workspace: str, name: str, version: str) -> dict[str, Any]:
    model = actions.get(db, workspace, name, version)
    return {**to_json(model), "aliases": registry.aliases_of(db, model)}


@router.patch("/{name}/versions/{version}")
@needs(Permission.WRITE)
def update(
    db: DatabaseOf,
    clock: ClockOf,
    workspace: str,
    name: str,
    version: str,
    changes: Annotated[Any, Body()],
) -> dict[str, Any]:
    mapping = fields.mapping(changes, "the document of changes")
    return to_json(actions.update(db, clock, workspace, name, version, mapping))


@router.post("/{name}/archive")
@needs(Permission.WRITE)
def archive(db: DatabaseOf, workspace: str, name: str) -> dict[str, Any]:
    return to_json(actions.archive(db, workspace, name))


@router.post("/{name}/restore")
@needs(Permission.WRITE)
def restore(db: DatabaseOf, workspace: str, name: str) -> dict[str, Any]:
    return to_json(actions.archive(db, workspace, name, archived=False))


@router.post("/{name}/versions/{version}/archive")
@needs(Permission.WRITE)
def archive_version(db: DatabaseOf, workspace: str, name: str, version: str) -> dict[str, Any]:
    return to_json(actions.archive(db, workspace, name, version))


@router.post("/{name}/versions/{version}/restore")
@needs(Permission.WRITE)
def restore_version(db: DatabaseOf, workspace: str, name: str, version: str) -> dict[str, Any]:
    return to_json(actions.archive(db, workspace, name, version, archived=False))


add_delete_routes(router, "", "model")


@router.get("/{name}/versions/{version}/files")
@needs(Permission.READ)
def list_files(db: DatabaseOf, workspace: str, name: str, version: str) -> dict[str, Any]:
    model = actions.get(db, workspace, name, version)
    return {"value": [dict(vars(file)) for file in model.files]}


@router.get("/{name}/versions/{version}/files/{path:path}")
@needs(Permission.READ)
def get_file(
    db: DatabaseOf, datastores: DatastoresOf, workspace: str, name: str, version: str, path: str
) -> FileResponse:
    model = actions.get(db, workspace, name, version)
    file = actions.file(datastores, model, path)
    return FileResponse(file, media_type="application/octet-stream")


def to_json(model: Model) -> dict[str, Any]:
    body = {**vars(model), "files": [dict(vars(file)) for file in model.files]}
    body["created_at"] = to_text(model.created_at)
    body["updated_at"] = to_text(model.updated_at or model.created_at)
    return body
