"""SDK v1's dataset service: definitions with ids, names with versions.

Owns: the JSON of saved and of registered datasets, what a run configuration names by them.
Leaves: definitions to data/saved_datasets.py, names and versions to data/assets.py.
Always: a dataset that is registered is a data asset as any other, and any data asset can be got as
a dataset.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import yaml
from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import timestamp
from torchyard.azureml.common.calls import Call, Caller, part
from torchyard.azureml.common.errors import AzureRoute
from torchyard.base import fields
from torchyard.base.errors import Conflict, InvalidInput, NotFound, TorchyardError
from torchyard.data import actions as data
from torchyard.data import assets, saved_datasets, uris
from torchyard.data.assets import Request
from torchyard.data.saved_datasets import SavedDataset
from torchyard.data.types import DataAsset
from torchyard.jobs.services import Services
from torchyard.workspaces import actions as workspaces

_SAVED = "azureml.v1.dataset"
_FILE, _TABULAR = "file", "tabular"
_UNREGISTERED = "unregistered-"


@dataclass(frozen=True)
class Datasets:
    """What SDK v1 calls datasets."""

    services: Services

    def of_configuration(self, workspace: str, asked: Mapping[str, Any]) -> tuple[str, str]:
        """(path, type) of the data that a run configuration names by a dataset."""
        id, name = str(asked.get("id") or ""), str(asked.get("name") or "")
        version = str(asked.get("version") or assets.LATEST)
        if id:
            path, type = saved_datasets.data_of(self.saved(workspace, id))
            return self._looked_at(workspace, self._ours(path), type)
        if not name:
            raise InvalidInput("an input of the run names no dataset")
        asset = assets.get(self.services.db, workspace, name, version)
        return f"azureml:{asset.name}:{asset.version}", asset.type

    def of_reference(self, workspace: str, asked: Mapping[str, Any]) -> tuple[str, str]:
        """(path, type) of the data that a DataReference names."""
        inner = str(asked.get("pathOnDataStore") or "").strip("/")
        path = f"azureml://datastores/{asked.get('dataStoreName')}/paths/{inner}"
        return self._looked_at(workspace, path, "uri_folder")

    def _looked_at(self, workspace: str, path: str, type: str) -> tuple[str, str]:
        """A path that may be a file's, with the type that it has."""
        if type == "uri_folder" and path.startswith("azureml://datastores/"):
            place = data.locate(self.services.db, self.services.datastores, workspace, path)
            if place.path and place.files.entry(place.path) is not None:
                return path, "uri_file"
        return path, type

    def save(
        self, workspace: str, kind: str, dataflow: str, said: Mapping[str, Any]
    ) -> SavedDataset:
        """The definition with its id, kept."""
        if kind not in (_FILE, _TABULAR) or not dataflow:
            raise InvalidInput("a dataset has no definition, or is neither `file` nor `tabular`")
        id = saved_datasets.id_of(workspace, kind, dataflow)
        # Lists come here for each of their data.
        with suppress(NotFound):
            return self.saved(workspace, id)
        made = SavedDataset(workspace, id, kind, dataflow, self.services.clock.now(), dict(said))
        with self.services.db.write() as connection:
            saved_datasets.save(connection, made)
            return saved_datasets.get(connection, workspace, id)

    def saved(self, workspace: str, id: str) -> SavedDataset:
        with self.services.db.read() as connection:
            return saved_datasets.get(connection, workspace, id)

    def definition_of(self, asset: DataAsset) -> SavedDataset:
        """The definition behind a data asset; made for those that have none."""
        if asset.properties.get(_SAVED):
            return self.saved(asset.workspace, asset.properties[_SAVED])
        key = {"uri_file": "file", "mltable": "folder"}.get(asset.type, "pattern")
        path = self._theirs(asset.workspace, asset.uri.rstrip("/"))
        path += "/**" if key == "pattern" else ""
        table = yaml.safe_dump({"type": "mltable", "paths": [{key: path}]})
        dataflow = json.dumps({"blocks": [], "meta": {"RsDataflow": table}})
        return self.save(asset.workspace, _FILE, dataflow, {})

    def register(self, call: Call) -> DataAsset:
        """A name and a version for a definition."""
        body, workspace = call.document, call.workspace.name
        latest = part(body, "latest")
        kind = str(body.get("datasetType") or _FILE)
        dataflow = str(latest.get("dataflow") or "")
        saved = self.save(workspace, kind, dataflow, part(latest, "properties"))
        query = {key.lower(): value.lower() for key, value in call.query.items()}
        name = str(body.get("name") or "")
        known = assets.list_in(self.services.db, workspace, name) if name else []
        if known and query.get("updatedefinitionifexists") != "true":
            same = [one for one in known if one.properties.get(_SAVED) == saved.id]
            if same and query.get("ifexistsok") == "true":
                return same[0]
            raise Conflict(f"a dataset `{name}` exists already", "give another name")
        path, type = self._place(saved)
        asked = Request(
            name=name,
            path=path,
            type=type,
            description=str(body.get("description") or ""),
            tags=fields.texts(body, "tags"),
            properties={_SAVED: saved.id},
        )
        assets.read_document({"name": name, "path": path, "type": type})
        return assets.register(
            self.services.db, self.services.clock, workspace, asked, path, call.identity.user
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

    def _place(self, saved: SavedDataset) -> tuple[str, str]:
        """Where a definition's data is, for the data asset; a table of many places has none."""
        try:
            path, type = saved_datasets.data_of(saved)
        except InvalidInput:
            return f"azureml:{saved.id}", "mltable"
        return self._looked_at(saved.workspace, self._ours(path), type)

    def change(self, call: Call, id: str) -> DataAsset:
        """Say something else of a registered dataset: description and tags."""
        workspace, body = call.workspace.name, call.document
        names = {
            saved_datasets.id_of(workspace, "name", one.name): one.name
            for one in assets.list_in(self.services.db, workspace)
        }
        if id.lower() not in names:
            raise NotFound(f"dataset `{id[:60]}` is not registered in workspace `{workspace}`")
        said, version = fields.texts(body, "tags"), str(part(body, "latest").get("versionId") or "")
        there = assets.get(self.services.db, workspace, names[id.lower()], version or assets.LATEST)
        return assets.describe(
            self.services.db,
            workspace,
            there.name,
            there.version,
            str(body.get("description") or ""),
            said,
            there.properties,
        )

    def _theirs(self, workspace: str, path: str) -> str:
        """The long form of a path in a datastore: the client reads no other."""
        mark = "azureml://datastores/"
        if not path.startswith(mark):
            return path
        there = workspaces.get(self.services.db, workspace)
        return (
            f"azureml://subscriptions/{there.subscription_id}/resourcegroups/"
            f"{there.resource_group}/workspaces/{there.name}/datastores/{path.removeprefix(mark)}"
        )

    def _ours(self, path: str) -> str:
        """The short form of a path in a datastore."""
        found = uris.datastore(path, "") if "/subscriptions/" not in path else None
        if found is not None:
            return str(found)
        _, mark, rest = path.partition("/datastores/")
        return f"azureml://datastores/{rest}" if mark and path.startswith("azureml://") else path


def routes(datasets: Datasets, caller: Caller) -> APIRouter:
    """`/dataset/v1.0`, and what the client reads of a definition at `/data/v1.0`."""
    found = APIRouter(route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]
    db = datasets.services.db

    @found.post("/dataset/saveddatasets")
    def save(call: the_call) -> JSONResponse:
        body = call.document
        kind, dataflow = str(body.get("datasetType") or ""), str(body.get("dataflowJson") or "")
        said = part(body, "properties")
        made = datasets.save(call.workspace.name, kind, dataflow, said)
        return JSONResponse(_saved_json(made))

    @found.get("/dataset/saveddatasets/{id}")
    def saved(call: the_call, id: str) -> JSONResponse:
        return JSONResponse(_saved_json(datasets.saved(call.workspace.name, id)))

    @found.post("/dataset/datasets/register")
    @found.post("/dataset/datasets")
    def register(call: the_call) -> JSONResponse:
        return JSONResponse(datasets.to_json(datasets.register(call)))

    @found.get("/dataset/datasets")
    def list_all(call: the_call) -> JSONResponse:
        there = assets.list_in(db, call.workspace.name)
        value = [datasets.to_json(one) for one in there]
        return JSONResponse({"value": value, "continuationToken": None, "nextLink": None})

    @found.put("/dataset/datasets/{id}")
    def change(call: the_call, id: str) -> JSONResponse:
        return JSONResponse(datasets.to_json(datasets.change(call, id)))

    @found.delete("/dataset/datasets/{name}")
    def unregister(call: the_call, name: str) -> JSONResponse:
        assets.archive(db, call.workspace.name, name)
        return JSONResponse({})

    @found.get("/dataset/datasets/query/{question}")
    def query(call: the_call, question: str) -> JSONResponse:
        word, _, wanted = question.partition("=")
        if word == "name":
            version = call.query.get("versionId") or assets.LATEST
            asset = assets.get(db, call.workspace.name, wanted, version)
            if asset.archived and version == assets.LATEST:
                raise NotFound(f"dataset `{asset.name}` is not registered any more")
            return JSONResponse(datasets.to_json(asset))
        there = [
            one
            for one in assets.list_in(db, call.workspace.name)
            if one.properties.get(_SAVED) == wanted
        ]
        value = [datasets.to_json(one) for one in there]
        return JSONResponse({"value": value, "continuationToken": None, "nextLink": None})

    @found.get("/data/dataversion/{name}/versions/{version}")
    def dataflow(call: the_call, name: str, version: str) -> JSONResponse:
        if name.startswith(_UNREGISTERED):
            there = datasets.saved(call.workspace.name, name.removeprefix(_UNREGISTERED))
        else:
            there = datasets.definition_of(assets.get(db, call.workspace.name, name, version))
        return JSONResponse({"legacyDataflow": there.mltable, "dataVersion": _version(there)})

    return found


def _saved_json(found: SavedDataset) -> dict[str, Any]:
    return {
        "id": found.id,
        "datasetType": found.kind,
        "properties": found.properties,
        "dataflowJson": found.dataflow,
        "dataChanged": False,
    }


def _version(found: SavedDataset) -> dict[str, Any]:
    try:
        path, type = saved_datasets.data_of(found)
    except TorchyardError:
        path, type = "", "mltable"
    return {"dataUri": path, "dataType": type}
