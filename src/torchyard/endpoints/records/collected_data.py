"""Collected data of deployments as data assets.

Owns: where the files of a collection are, the asset's name and version, registering it.
Leaves: writing the files to router/, which collections there are to spec/data_collection.py.
Always: as on Azure, a collection is one version of a `uri_folder` that grows; another deployment of
the same name goes on with it; data that was registered otherwise is never taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchyard.base.db import Database
from torchyard.base.errors import Conflict
from torchyard.data import assets
from torchyard.data.datastores import BLOB_STORE, Datastores
from torchyard.data.types import DataAsset
from torchyard.data.uris import DatastoreUri
from torchyard.endpoints.records.types import Endpoint
from torchyard.endpoints.spec.data_collection import Collection
from torchyard.endpoints.spec.deployment_spec import DeploymentSpec
from torchyard.jobs.services import FileServices

FOLDER = "modelDataCollector"
"""Of the default datastore, as Azure names it."""


@dataclass(frozen=True)
class Collected:
    """A collection's data asset; `is_new` says that it is not registered yet."""

    collection: str
    deployment: str
    name: str
    version: str
    uri: str
    is_new: bool


def folder_of(stores: Datastores, workspace: str, endpoint: str, deployment: str) -> Path:
    """Below it, each collection has a folder."""
    return stores.root(workspace, BLOB_STORE) / FOLDER / endpoint / deployment


def name_of(endpoint: str, deployment: str, collection: Collection) -> str:
    return collection.data_name or f"{endpoint}-{deployment}-{collection.name}"


def find(
    db: Database, endpoint: Endpoint, deployment: str, spec: DeploymentSpec
) -> list[Collected]:
    """The data assets that the deployment's collections are, or are to be.

    Raises:
        Conflict: a version that the file names is other data, or was deleted.
    """
    if spec.data_collector is None:
        return []
    return [_found(db, endpoint, deployment, each) for each in spec.data_collector.collections]


def register(
    services: FileServices, endpoint: Endpoint, collected: Sequence[Collected], owner: str
) -> None:
    """Register those that are not; another server may do the same at the same time."""
    workspace = endpoint.workspace
    for each in collected:
        source = f"{endpoint.name}/{each.deployment}"
        folder = folder_of(services.datastores, workspace, endpoint.name, each.deployment)
        (folder / each.collection).mkdir(mode=0o700, parents=True, exist_ok=True)
        if not each.is_new:
            continue
        request = assets.DataRequest(
            name=each.name,
            path=each.uri,
            type="uri_folder",
            version=each.version,
            description=f"`{each.collection}` of deployment {source}, as JSON lines",
            properties={"collection": each.collection, "deployment": source},
        )
        try:
            assets.register(services.db, services.clock, workspace, request, each.uri, owner)
        except Conflict:
            asset = assets.get(services.db, workspace, each.name, each.version)
            if asset.uri != each.uri:
                raise


def _found(db: Database, endpoint: Endpoint, deployment: str, collection: Collection) -> Collected:
    name = name_of(endpoint.name, deployment, collection)
    path = f"{FOLDER}/{endpoint.name}/{deployment}/{collection.name}"
    uri = str(DatastoreUri(BLOB_STORE, path))
    there, deleted = assets.all_versions(db, endpoint.workspace, name)
    of_uri = [asset for asset in there if asset.uri == uri]
    requested = collection.data_version
    for asset in of_uri:
        if not requested or asset.version == requested:
            return Collected(collection.name, deployment, name, asset.version, uri, False)
    version = requested or _next(there, deleted)
    if version in deleted or any(asset.version == version for asset in there):
        conflict = "was deleted" if version in deleted else "is other data"
        raise Conflict(
            f"data `{name}:{version}` {conflict}: collection `{collection.name}` can't be "
            "kept as it",
            "name another version, or none, with `data: {name: …, version: …}`",
            at=("data_collector", "collections", collection.name, "data"),
        )
    return Collected(collection.name, deployment, name, version, uri, True)


def _next(there: Sequence[DataAsset], deleted: set[str]) -> str:
    """Azure's `1`, where that is free."""
    taken = {asset.version for asset in there} | deleted
    return next(str(number) for number in range(1, len(taken) + 2) if str(number) not in taken)
