"""HTTP: datastores, data assets, URL maps."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from fastapi.responses import FileResponse

from torchyard.base import fields
from torchyard.base.blobs import Blobs
from torchyard.base.clock import Clock, to_text
from torchyard.base.db import Database
from torchyard.base.errors import NotFound
from torchyard.data import actions, assets, datastores, url_maps
from torchyard.data.datastores import BLOB_STORE, BUILT_IN, Datastores
from torchyard.data.fetching import Fetcher
from torchyard.data.types import DataAsset, Datastore, UrlMap
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission


def router(
    db: Database,
    clock: Clock,
    stores: Datastores,
    blobs: Blobs,
    fetcher: Fetcher,
    resolve: assets.Resolve,
) -> APIRouter:
    """
    Args:
        resolve: from (workspace, type, path) of an asset to the URI to keep; it knows jobs too.
    """
    routes = APIRouter(prefix="/v1/workspaces/{workspace}", tags=["data"], route_class=GuardedRoute)
    _datastore_routes(routes, db, clock, stores)
    _url_map_routes(routes, db, clock, stores)
    _asset_routes(routes, db, clock, stores, blobs, fetcher, resolve)
    return routes


def _datastore_routes(routes: APIRouter, db: Database, clock: Clock, stores: Datastores) -> None:
    @routes.get("/datastores")
    @needs(Permission.READ)
    def list_datastores(workspace: str, identity: Person) -> dict[str, Any]:
        found = datastores.list_in(db, stores, workspace)
        return {"value": [datastore_to_json(one) for one in found]}

    @routes.get("/datastores/{name}")
    @needs(Permission.READ)
    def show_datastore(workspace: str, name: str, identity: Person) -> dict[str, Any]:
        return datastore_to_json(datastores.get(db, stores, workspace, name))

    @routes.put("/datastores/{name}")
    @needs(Permission.WRITE)
    def put_datastore(
        workspace: str, name: str, identity: Person, document: Annotated[Any, Body()]
    ) -> dict[str, Any]:
        asked = fields.named(fields.mapping(document, "the datastore's document"), name)
        return datastore_to_json(datastores.put(db, clock, stores, workspace, asked))

    @routes.delete("/datastores/{name}")
    @needs(Permission.WRITE)
    def delete_datastore(workspace: str, name: str, identity: Person) -> dict[str, Any]:
        datastores.drop(db, stores, workspace, name)
        return {}


def _url_map_routes(routes: APIRouter, db: Database, clock: Clock, stores: Datastores) -> None:
    @routes.get("/url-maps")
    @needs(Permission.READ)
    def list_url_maps(workspace: str, identity: Person) -> dict[str, Any]:
        return {"value": [url_map_to_json(made) for made in url_maps.list_in(db, workspace)]}

    @routes.put("/url-maps")
    @needs(Permission.SETTINGS)
    def put_url_map(
        workspace: str,
        identity: Person,
        prefix: Annotated[str, Body()],
        target: Annotated[str, Body()],
    ) -> dict[str, Any]:
        return url_map_to_json(url_maps.put(db, clock, stores, workspace, prefix, target))

    @routes.delete("/url-maps")
    @needs(Permission.SETTINGS)
    def delete_url_map(workspace: str, identity: Person, prefix: str) -> dict[str, Any]:
        url_maps.drop(db, workspace, prefix)
        return {}


def _asset_routes(
    routes: APIRouter,
    db: Database,
    clock: Clock,
    stores: Datastores,
    blobs: Blobs,
    fetcher: Fetcher,
    resolve: assets.Resolve,
) -> None:
    @routes.post("/data", status_code=201)
    @needs(Permission.WRITE)
    def create(
        workspace: str, identity: Person, document: Annotated[Any, Body()]
    ) -> dict[str, Any]:
        asked = assets.read_document(fields.mapping(document, "the data asset's document"))
        made = assets.create(db, clock, stores, blobs, resolve, workspace, asked, identity.user)
        return asset_to_json(made)

    @routes.get("/data")
    @needs(Permission.READ)
    def list_data(
        workspace: str, identity: Person, name: str = "", archived: str = ""
    ) -> dict[str, Any]:
        found = assets.list_in(db, workspace, name, fields.archived(archived))
        return {"value": [asset_to_json(asset) for asset in found]}

    @routes.get("/data/{name}/versions/{version}")
    @needs(Permission.READ)
    def show(workspace: str, name: str, version: str, identity: Person) -> dict[str, Any]:
        return asset_to_json(assets.get(db, workspace, name, version))

    @routes.get("/data/{name}/versions/{version}/files")
    @needs(Permission.READ)
    def list_files(workspace: str, name: str, version: str, identity: Person) -> dict[str, Any]:
        asset = assets.get(db, workspace, name, version)
        return {"value": [dict(vars(file)) for file in actions.files_of(db, stores, asset)]}

    @routes.get("/data/{name}/versions/{version}/files/{path:path}")
    @needs(Permission.READ)
    def get_file(
        workspace: str, name: str, version: str, path: str, identity: Person
    ) -> FileResponse:
        asset = assets.get(db, workspace, name, version)
        place = actions.locate(db, stores, workspace, asset.uri)
        if asset.type == "uri_file":
            if path != actions.files_of(db, stores, asset)[0].path:
                raise NotFound(f"data `{asset.name}:{asset.version}` has no file `{path}`")
            path = ""
        found = fetcher.file(workspace, place, path)
        return FileResponse(found, media_type="application/octet-stream")

    for verb, archived in (("archive", True), ("restore", False)):
        _archive_routes(routes, db, verb, archived)


def _archive_routes(routes: APIRouter, db: Database, verb: str, archived: bool) -> None:
    @routes.post(f"/data/{{name}}/{verb}", name=f"{verb}_data")
    @needs(Permission.WRITE)
    def all_versions(workspace: str, name: str, identity: Person) -> dict[str, Any]:
        return asset_to_json(assets.archive(db, workspace, name, archived=archived))

    @routes.post(f"/data/{{name}}/versions/{{version}}/{verb}", name=f"{verb}_data_version")
    @needs(Permission.WRITE)
    def one_version(workspace: str, name: str, version: str, identity: Person) -> dict[str, Any]:
        exact = assets.get(db, workspace, name, version).version
        return asset_to_json(assets.archive(db, workspace, name, exact, archived))


def datastore_to_json(found: Datastore) -> dict[str, Any]:
    """Without what fsspec gets: that may hold secrets."""
    return {
        "name": found.name,
        "type": found.kind,
        "workspace": found.workspace,
        "description": found.description,
        "tags": found.tags,
        "url": found.url,
        "created_at": to_text(found.created_at),
        "built_in": found.name in BUILT_IN,
        "is_default": found.name == BLOB_STORE,
        **found.document,
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
