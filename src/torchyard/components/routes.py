"""HTTP: components."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.base import fields
from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.base.clock import to_text
from torchyard.base.db import Database
from torchyard.base.dependencies import BlobsOf, ClockOf, DatabaseOf
from torchyard.base.errors import InvalidSpec
from torchyard.components import actions, documents
from torchyard.components.types import Component
from torchyard.data.deletion import add_archive_routes
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/components",
    tags=["components"],
    route_class=GuardedRoute,
)


@router.post("", status_code=201)
@needs(Permission.WRITE)
def create(
    db: DatabaseOf,
    clock: ClockOf,
    blobs: BlobsOf,
    workspace: str,
    identity: Person,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    mapping = fields.mapping(document, "the component's document")
    documents.check_type(mapping.get("type"))
    _code_exists(blobs, mapping.get("code"))
    component, _ = actions.register(db, clock, workspace, mapping, identity.user)
    return to_json(component)


@router.get("")
@needs(Permission.READ)
def list_components(
    db: DatabaseOf, workspace: str, name: str = "", archived: str = ""
) -> dict[str, Any]:
    components = actions.list_in(db, workspace, name, fields.archived(archived))
    return {"value": [to_json(component) for component in components]}


@router.get("/{name}/versions/{version}")
@needs(Permission.READ)
def show(db: DatabaseOf, workspace: str, name: str, version: str) -> dict[str, Any]:
    return to_json(actions.get(db, workspace, name, version))


def _archive(
    db: Database, workspace: str, name: str, version: str, archived: bool, user: str
) -> dict[str, Any]:
    return to_json(actions.archive(db, workspace, name, version, archived, user=user))


add_archive_routes(router, "", _archive)


def to_json(component: Component) -> dict[str, Any]:
    columns = {key: value for key, value in vars(component).items() if key != "definition"}
    return {**component.definition, **columns, "created_at": to_text(component.created_at)}


def _code_exists(blobs: Blobs, code: Any) -> None:
    if code is None:
        return
    if not fields.text({"code": code}, "code").startswith(SNAPSHOT_PREFIX):
        raise InvalidSpec(
            f"`{code}` is not served as `code`", "name a folder beside the file", at=["code"]
        )
    blobs.snapshot(code.removeprefix(SNAPSHOT_PREFIX))
