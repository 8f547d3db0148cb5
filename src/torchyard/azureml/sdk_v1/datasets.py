"""SDK v1's dataset service: definitions with ids, names with versions.

Owns: the JSON of saved and of registered datasets, what a dataset in a run configuration means.
Leaves: definitions to data/saved_datasets.py, names and versions to data/assets.py.
Always: a registered dataset is a data asset like any other, and any data asset can be read as a
dataset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import yaml
from fastapi import Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.arm import assets as arm
from torchyard.azureml.arm.resources import timestamp
from torchyard.azureml.common.calls import AzureCall, Call, object_at
from torchyard.azureml.common.routing import RouteTable
from torchyard.base import fields
from torchyard.base.dependencies import DatabaseOf
from torchyard.base.errors import Conflict, InvalidInput, NotFound, TorchyardError
from torchyard.base.refs import NAME_PATTERN
from torchyard.data import actions as data
from torchyard.data import assets, saved_datasets, uris
from torchyard.data.assets import DataRequest
from torchyard.data.saved_datasets import SavedDataset
from torchyard.data.types import DataAsset
from torchyard.jobs.services import FileServices, ServicesOf
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_SAVED = "azureml.v1.dataset"
_FILE, _TABULAR = "file", "tabular"
_UNREGISTERED = "unregistered-"
# The data plane's words for types differ from Azure Resource Manager's.
_TYPES = {"uri_file": "UriFile", "uri_folder": "UriFolder", "mltable": "MLTable"}


@dataclass(frozen=True)
class Datasets:
    """What SDK v1 calls datasets."""

    services: FileServices

    def of_configuration(self, workspace: str, reference: Mapping[str, Any]) -> tuple[str, str]:
        """(path, type) of the data that a run configuration names by a dataset."""
        id, name = str(reference.get("id") or ""), str(reference.get("name") or "")
        version = str(reference.get("version") or assets.LATEST)
        if id:
            saved = self.saved(workspace, id)
            if saved.kind == _FILE and not saved_datasets.is_one_place(saved):
                saved_datasets.paths_of(saved)
                return f"azureml:{saved.id}", "uri_folder"
            path, type = saved_datasets.data_of(saved)
            return self._with_type(workspace, self._short(path), type)
        if not name:
            raise InvalidInput("an input of the run names no dataset")
        asset = assets.get(self.services.db, workspace, name, version)
        if " " in asset.name:
            return asset.uri, asset.type  # a reference has no spaces
        return f"azureml:{asset.name}:{asset.version}", asset.type

    def id_of(self, workspace: str, reference: Mapping[str, Any]) -> str:
        """The id of the definition that `of_configuration` finds."""
        if reference.get("id"):
            return str(reference["id"])
        version = str(reference.get("version") or assets.LATEST)
        asset = assets.get(self.services.db, workspace, str(reference.get("name")), version)
        return self.definition_of(asset).id

    def of_reference(self, workspace: str, reference: Mapping[str, Any]) -> tuple[str, str]:
        """(path, type) of the data that a DataReference names."""
        path_in_store = str(reference.get("pathOnDataStore") or "").strip("/")
        path = f"azureml://datastores/{reference.get('dataStoreName')}/paths/{path_in_store}"
        return self._with_type(workspace, path, "uri_folder")

    def _with_type(self, workspace: str, path: str, type: str) -> tuple[str, str]:
        """A path with its type: a folder's may turn out to be a file's."""
        if type == "uri_folder" and path.startswith("azureml://datastores/"):
            location = data.locate(self.services.db, self.services.datastores, workspace, path)
            if location.path and location.files.entry(location.path) is not None:
                return path, "uri_file"
        return path, type

    def save(
        self, workspace: str, kind: str, dataflow: str, properties: Mapping[str, Any]
    ) -> SavedDataset:
        """Store a definition under its id."""
        if kind not in (_FILE, _TABULAR) or not dataflow:
            raise InvalidInput("a dataset has no definition, or is neither `file` nor `tabular`")
        id = saved_datasets.id_of(workspace, kind, dataflow)
        # A list saves the definition of each of its data assets.
        with suppress(NotFound):
            return self.saved(workspace, id)
        now = self.services.clock.now()
        saved = SavedDataset(workspace, id, kind, dataflow, now, dict(properties))
        with self.services.db.write() as connection:
            saved_datasets.save(connection, saved)
            return saved_datasets.get(connection, workspace, id)

    def saved(self, workspace: str, id: str) -> SavedDataset:
        with self.services.db.read() as connection:
            return saved_datasets.get(connection, workspace, id)

    def definition_of(self, asset: DataAsset) -> SavedDataset:
        """The definition of a data asset; created for those that have none."""
        if asset.properties.get(_SAVED):
            return self.saved(asset.workspace, asset.properties[_SAVED])
        key = {"uri_file": "file", "mltable": "folder"}.get(asset.type, "pattern")
        path = self._long(asset.workspace, asset.uri.rstrip("/"))
        path += "/**" if key == "pattern" else ""
        table = yaml.safe_dump({"type": "mltable", "paths": [{key: path}]})
        dataflow = json.dumps({"blocks": [], "meta": {"RsDataflow": table}})
        return self.save(asset.workspace, _FILE, dataflow, {})

    def register(self, call: Call) -> DataAsset:
        """A name and a version for a definition."""
        body, workspace = call.document, call.workspace.name
        latest = object_at(body, "latest")
        kind = str(body.get("datasetType") or _FILE)
        dataflow = str(latest.get("dataflow") or "")
        saved = self.save(workspace, kind, dataflow, object_at(latest, "properties"))
        query = {key.lower(): value.lower() for key, value in call.query.items()}
        name = str(body.get("name") or "")
        versions = assets.list_in(self.services.db, workspace, name) if name else []
        if versions and query.get("updatedefinitionifexists") != "true":
            same = [asset for asset in versions if asset.properties.get(_SAVED) == saved.id]
            if same and query.get("ifexistsok") == "true":
                return same[0]
            raise Conflict(f"a dataset `{name}` exists already", "choose another name")
        path, type = self._location(saved)
        request = DataRequest(
            name=name,
            path=path,
            type=type,
            description=str(body.get("description") or ""),
            tags=fields.texts(body, "tags"),
            properties={_SAVED: saved.id},
        )
        # SDK v1's names may have spaces inside.
        plain_name = name.replace(" ", "-") if name == name.strip() else name
        checked_name = plain_name if NAME_PATTERN.match(plain_name) else name
        assets.read_document({"name": checked_name, "path": path, "type": type})
        return assets.register(
            self.services.db, self.services.clock, workspace, request, path, call.identity.user
        )

    def to_json(self, asset: DataAsset) -> dict[str, Any]:
        saved = self.definition_of(asset)
        id = saved_datasets.id_of(asset.workspace, "name", asset.name)
        created = timestamp(asset.created_at)
        return {
            "datasetId": id,
            "datasetState": {"state": "active"},
            "latest": {
                "datasetId": id,
                "versionId": asset.version,
                "datasetDefinitionState": {"state": "active"},
                "dataflow": saved.dataflow,
                "createdTime": created,
                "modifiedTime": created,
                "properties": saved.properties,
                "savedDatasetId": saved.id,
            },
            "createdTime": created,
            "modifiedTime": created,
            "name": asset.name,
            "description": asset.description,
            "tags": asset.tags,
            "isVisible": True,
            "datasetType": saved.kind,
        }

    def _location(self, saved: SavedDataset) -> tuple[str, str]:
        """(path, type) of a definition's data; a table of several paths has none of its own."""
        try:
            path, type = saved_datasets.data_of(saved)
        except InvalidInput:
            return f"azureml:{saved.id}", "mltable"
        return self._with_type(saved.workspace, self._short(path), type)

    def change(self, call: Call, id: str) -> DataAsset:
        """Change the description and tags of a registered dataset."""
        workspace, body = call.workspace.name, call.document
        names = {
            saved_datasets.id_of(workspace, "name", asset.name): asset.name
            for asset in assets.list_in(self.services.db, workspace)
        }
        if id.lower() not in names:
            raise NotFound(f"dataset `{id[:60]}` is not registered in workspace `{workspace}`")
        tags, name = fields.texts(body, "tags"), names[id.lower()]
        version = str(object_at(body, "latest").get("versionId") or assets.LATEST)
        asset = assets.get(self.services.db, workspace, name, version)
        return assets.describe(
            self.services.db,
            workspace,
            asset.name,
            asset.version,
            str(body.get("description") or ""),
            tags,
            asset.properties,
            user=call.identity.user,
        )

    def _long(self, workspace: str, path: str) -> str:
        """The long form of a path in a datastore, the only one that the client reads."""
        prefix = "azureml://datastores/"
        if not path.startswith(prefix):
            return path
        resource = workspaces.get(self.services.db, workspace)
        return (
            f"azureml://subscriptions/{resource.subscription_id}/resourcegroups/"
            f"{resource.resource_group}/workspaces/{resource.name}/datastores/{path.removeprefix(prefix)}"
        )

    def _short(self, path: str) -> str:
        """The short form of a path in a datastore."""
        uri = uris.datastore(path, "") if "/subscriptions/" not in path else None
        if uri is not None:
            return str(uri)
        return saved_datasets.short_path(path)


routes = RouteTable()


async def _datasets(services: ServicesOf) -> Datasets:
    return Datasets(services)


DatasetsOf = Annotated[Datasets, Depends(_datasets)]


@routes.post("/dataset/saveddatasets")
@needs(Permission.WRITE)
def save(call: AzureCall, datasets: DatasetsOf) -> JSONResponse:
    body = call.document
    kind, dataflow = str(body.get("datasetType") or ""), str(body.get("dataflowJson") or "")
    saved = datasets.save(call.workspace.name, kind, dataflow, object_at(body, "properties"))
    return JSONResponse(_saved_json(saved))


@routes.get("/dataset/saveddatasets/{id}")
@needs(Permission.READ)
def get_saved(call: AzureCall, datasets: DatasetsOf, id: str) -> JSONResponse:
    return JSONResponse(_saved_json(datasets.saved(call.workspace.name, id)))


@routes.post("/dataset/datasets/register", "/dataset/datasets")
@needs(Permission.WRITE)
def register(call: AzureCall, datasets: DatasetsOf) -> JSONResponse:
    return JSONResponse(datasets.to_json(datasets.register(call)))


@routes.get("/dataset/datasets")
@needs(Permission.READ)
def list_all(call: AzureCall, datasets: DatasetsOf, db: DatabaseOf) -> JSONResponse:
    return _list(datasets, assets.list_in(db, call.workspace.name))


@routes.put("/dataset/datasets/{id}")
@needs(Permission.WRITE)
def change(call: AzureCall, datasets: DatasetsOf, id: str) -> JSONResponse:
    return JSONResponse(datasets.to_json(datasets.change(call, id)))


@routes.delete("/dataset/datasets/{name}")
@needs(Permission.WRITE)
def unregister(call: AzureCall, db: DatabaseOf, name: str) -> JSONResponse:
    assets.archive(db, call.workspace.name, name, user=call.identity.user)
    return JSONResponse({})


@routes.get("/dataset/datasets/query/{question}")
@needs(Permission.READ)
def query(call: AzureCall, datasets: DatasetsOf, db: DatabaseOf, question: str) -> JSONResponse:
    """By `name=…`, one dataset; by the id of its definition, a list."""
    key, _, value = question.partition("=")
    if key == "name":
        version = call.query.get("versionId") or assets.LATEST
        asset = assets.get(db, call.workspace.name, value, version)
        if asset.archived and version == assets.LATEST:
            raise NotFound(f"dataset `{asset.name}` is no longer registered")
        return JSONResponse(datasets.to_json(asset))
    matching = [
        asset
        for asset in assets.list_in(db, call.workspace.name)
        if asset.properties.get(_SAVED) == value
    ]
    return _list(datasets, matching)


@routes.get("/data/dataversion/{name}/versions/{version}")
@needs(Permission.READ)
def get_dataflow(
    call: AzureCall, datasets: DatasetsOf, db: DatabaseOf, name: str, version: str
) -> JSONResponse:
    """The data of a version: `mltable` reads `isV2` and the address, SDK v1 the definition."""
    asset = None
    if name.startswith(_UNREGISTERED):
        saved = datasets.saved(call.workspace.name, name.removeprefix(_UNREGISTERED))
    else:
        asset = assets.get(db, call.workspace.name, name, version)
        saved = datasets.definition_of(asset)
    is_definition = asset is None or _SAVED in asset.properties
    if asset is None or is_definition:
        data_version = _version(saved)
    else:
        uri = arm.long_uri(call, asset.uri)
        data_version = {"dataUri": uri, "dataType": _TYPES.get(asset.type, asset.type)}
    return JSONResponse(
        {
            "isV2": not is_definition,
            "legacyDataflow": saved.mltable,
            "dataVersion": data_version,
        }
    )


def _list(datasets: Datasets, data_assets: Sequence[DataAsset]) -> JSONResponse:
    value = [datasets.to_json(asset) for asset in data_assets]
    return JSONResponse({"value": value, "continuationToken": None, "nextLink": None})


def _saved_json(saved: SavedDataset) -> dict[str, Any]:
    return {
        "id": saved.id,
        "datasetType": saved.kind,
        "properties": saved.properties,
        "dataflowJson": saved.dataflow,
        "dataChanged": False,
    }


def _version(saved: SavedDataset) -> dict[str, Any]:
    try:
        path, type = saved_datasets.data_of(saved)
    except TorchyardError:
        path, type = "", "mltable"
    return {"dataUri": path, "dataType": type}
