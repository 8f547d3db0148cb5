"""HTTP: models."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.assets import served_files
from torchyard.base import fields
from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.clock import to_text
from torchyard.base.db import Database
from torchyard.base.dependencies import ClockOf, DatabaseOf
from torchyard.data.deletion import add_archive_routes, add_delete_routes
from torchyard.data.dependencies import DatastoresOf
from torchyard.models import actions, registry, signatures
from torchyard.models.types import Model
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.hooks import HooksOf
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/models", tags=["models"], route_class=GuardedRoute
)


@router.post("", status_code=201)
@needs(Permission.WRITE)
def register(
    db: DatabaseOf,
    clock: ClockOf,
    datastores: DatastoresOf,
    hooks: HooksOf,
    workspace: str,
    identity: Person,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    mapping = fields.mapping(document, "the model's document")
    made = actions.register(
        db, clock, datastores, hooks.find_model, workspace, mapping, identity.user
    )
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
    identity: Person,
    changes: Annotated[Any, Body()],
) -> dict[str, Any]:
    mapping = fields.mapping(changes, "the document of changes")
    changed = actions.update(db, clock, workspace, name, version, mapping, user=identity.user)
    return to_json(changed)


def _archive(
    db: Database, workspace: str, name: str, version: str, archived: bool, user: str
) -> dict[str, Any]:
    return to_json(actions.archive(db, workspace, name, version, archived, user=user))


add_archive_routes(router, "", _archive)
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
) -> OpenFileResponse:
    model = actions.get(db, workspace, name, version)
    file = actions.file(datastores, model, path)
    return served_files.attachment(file)


def to_json(model: Model) -> dict[str, Any]:
    body = {**vars(model), "files": [dict(vars(file)) for file in model.files]}
    body["signature"] = signatures.to_json(model.signature)
    body["created_at"] = to_text(model.created_at)
    body["updated_at"] = to_text(model.updated_at or model.created_at)
    return body
