"""HTTP: datastores, data assets, URL maps."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.assets import served_files
from torchyard.base import fields
from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.clock import to_text
from torchyard.base.db import Database
from torchyard.base.dependencies import BlobsOf, ClockOf, DatabaseOf
from torchyard.base.errors import NotFound
from torchyard.data import actions, assets, datastores, url_maps
from torchyard.data.datastores import BLOB_STORE, BUILT_IN
from torchyard.data.deletion import add_archive_routes, add_delete_routes
from torchyard.data.dependencies import DatastoresOf, FetcherOf
from torchyard.data.types import DataAsset, Datastore, UrlMap
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.hooks import HooksOf
from torchyard.workspaces.permissions import Permission

router = APIRouter(prefix="/v1/workspaces/{workspace}", tags=["data"], route_class=GuardedRoute)


@router.get("/datastores")
@needs(Permission.READ)
def list_datastores(db: DatabaseOf, stores: DatastoresOf, workspace: str) -> dict[str, Any]:
    listed = datastores.list_in(db, stores, workspace)
    return {"value": [datastore_to_json(datastore) for datastore in listed]}


@router.get("/datastores/{name}")
@needs(Permission.READ)
def show_datastore(
    db: DatabaseOf, stores: DatastoresOf, workspace: str, name: str
) -> dict[str, Any]:
    return datastore_to_json(datastores.get(db, stores, workspace, name))


@router.put("/datastores/{name}")
@needs(Permission.WRITE)
def put_datastore(
    db: DatabaseOf,
    clock: ClockOf,
    stores: DatastoresOf,
    workspace: str,
    name: str,
    identity: Person,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    datastore_document = fields.with_path_name(
        fields.mapping(document, "the datastore's document"), name
    )
    made = datastores.put(db, clock, stores, workspace, datastore_document, identity.user)
    return datastore_to_json(made)


@router.delete("/datastores/{name}")
@needs(Permission.WRITE)
def delete_datastore(
    db: DatabaseOf, stores: DatastoresOf, workspace: str, name: str, identity: Person
) -> dict[str, Any]:
    datastores.drop(db, stores, workspace, name, identity.user)
    return {}


@router.get("/url-maps")
@needs(Permission.READ)
def list_url_maps(db: DatabaseOf, workspace: str) -> dict[str, Any]:
    return {"value": [url_map_to_json(made) for made in url_maps.list_in(db, workspace)]}


@router.put("/url-maps")
@needs(Permission.SETTINGS)
def put_url_map(
    db: DatabaseOf,
    clock: ClockOf,
    stores: DatastoresOf,
    workspace: str,
    prefix: Annotated[str, Body()],
    target: Annotated[str, Body()],
) -> dict[str, Any]:
    return url_map_to_json(url_maps.put(db, clock, stores, workspace, prefix, target))


@router.delete("/url-maps")
@needs(Permission.SETTINGS)
def delete_url_map(db: DatabaseOf, workspace: str, prefix: str) -> dict[str, Any]:
    url_maps.drop(db, workspace, prefix)
    return {}


@router.post("/data", status_code=201)
@needs(Permission.WRITE)
def create(
    db: DatabaseOf,
    clock: ClockOf,
    stores: DatastoresOf,
    blobs: BlobsOf,
    hooks: HooksOf,
    workspace: str,
    identity: Person,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    request = assets.read_document(fields.mapping(document, "the data asset's document"))
    asset = assets.create(
        db, clock, stores, blobs, hooks.resolve_data, workspace, request, identity.user
    )
    return asset_to_json(asset)


@router.get("/data")
@needs(Permission.READ)
def list_data(db: DatabaseOf, workspace: str, name: str = "", archived: str = "") -> dict[str, Any]:
    listed = assets.list_in(db, workspace, name, fields.archived(archived))
    return {"value": [asset_to_json(asset) for asset in listed]}


@router.get("/data/{name}/versions/{version}")
@needs(Permission.READ)
def show(db: DatabaseOf, workspace: str, name: str, version: str) -> dict[str, Any]:
    return asset_to_json(assets.get(db, workspace, name, version))


@router.patch("/data/{name}/versions/{version}")
@needs(Permission.WRITE)
def update(
    db: DatabaseOf,
    workspace: str,
    name: str,
    version: str,
    identity: Person,
    changes: Annotated[Any, Body()],
) -> dict[str, Any]:
    mapping = fields.mapping(changes, "the document of changes")
    changed = assets.update(db, workspace, name, version, mapping, user=identity.user)
    return asset_to_json(changed)


@router.get("/data/{name}/versions/{version}/files")
@needs(Permission.READ)
def list_files(
    db: DatabaseOf, stores: DatastoresOf, workspace: str, name: str, version: str
) -> dict[str, Any]:
    asset = assets.get(db, workspace, name, version)
    links: list[int] = []
    listed = actions.files_of(db, stores, asset, links.append)
    return {"value": [dict(vars(file)) for file in listed], "links_left_out": sum(links)}


@router.get("/data/{name}/versions/{version}/files/{path:path}")
@needs(Permission.READ)
def get_file(
    db: DatabaseOf,
    stores: DatastoresOf,
    fetcher: FetcherOf,
    workspace: str,
    name: str,
    version: str,
    path: str,
) -> OpenFileResponse:
    asset = assets.get(db, workspace, name, version)
    location = actions.locate(db, stores, workspace, asset.uri)
    if asset.type == "uri_file":
        if path != actions.files_of(db, stores, asset)[0].path:
            raise NotFound(f"data `{asset.name}:{asset.version}` has no file `{path}`")
        path = ""
    file = fetcher.file(workspace, location, path)
    return served_files.attachment(file)


def _archive(
    db: Database, workspace: str, name: str, version: str, archived: bool, user: str
) -> dict[str, Any]:
    return asset_to_json(assets.archive(db, workspace, name, version, archived, user=user))


add_archive_routes(router, "/data", _archive)
add_delete_routes(router, "/data", "data")


def datastore_to_json(datastore: Datastore) -> dict[str, Any]:
    """Without the options of fsspec, which may hold secrets."""
    return {
        "name": datastore.name,
        "type": datastore.kind,
        "workspace": datastore.workspace,
        "description": datastore.description,
        "tags": datastore.tags,
        "url": datastore.url,
        "created_at": to_text(datastore.created_at),
        "built_in": datastore.name in BUILT_IN,
        "is_default": datastore.name == BLOB_STORE,
        **datastore.document,
    }


def asset_to_json(asset: DataAsset) -> dict[str, Any]:
    body = {**vars(asset), "path": asset.uri, "created_at": to_text(asset.created_at)}
    del body["uri"]
    return body


def url_map_to_json(made: UrlMap) -> dict[str, Any]:
    return {
        "prefix": made.prefix,
        "target": made.target,
        "created_at": to_text(made.created_at),
    }
