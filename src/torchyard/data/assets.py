"""Data assets: data with a name and versions.

Owns: the asset's document, versions, archiving, where uploaded files are put.
Leaves: what a path means to actions.py, what a job left to whoever passes a `FindOutput`.
Always: a version once given never changes but for what is said of it; uploaded files are in the
datastore before the version exists.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchyard.assets import versions
from torchyard.assets.versioned_assets import VersionedAssets
from torchyard.base import fields, files
from torchyard.base.blobs import Blobs, Snapshot
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidSpec, nearest
from torchyard.data import datastores, documents, store
from torchyard.data.datastores import BLOB_STORE, BUILT_IN, Datastores, upload_folder
from torchyard.data.types import DATA_TYPES, DataAsset
from torchyard.data.uris import DatastoreUri

_KEYS = (
    "name", "version", "type", "path", "datastore", "description", "tags", "properties", "$schema",
)  # fmt: skip
_SNAPSHOT = "snapshot:"
LATEST = versions.LATEST

_assets = VersionedAssets("data", store.asset_versions)
get = _assets.get
list_in = _assets.list_in
list_versions = _assets.list_versions
archive = _assets.archive

# From an asset's `path` to a pinned URI; actions.py and jobs/ know how.
Resolve = Callable[[str, str, str], str]


@dataclass(frozen=True)
class Request:
    """A data asset's document, read."""

    name: str
    path: str
    type: str = "uri_folder"
    version: str = ""
    datastore: str = ""
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    job: str = ""


def read_document(document: Mapping[str, Any]) -> Request:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    fields.refuse_unknown(document, _KEYS)
    path = "name a local file or folder, a URL, or `azureml://datastores/<name>/paths/<path>`"
    return Request(
        name=documents.name_of(document, "data", "data asset"),
        path=documents.path_of(document, "data asset", path),
        type=_type(document),
        version=documents.version_of(document),
        datastore=str(document.get("datastore") or "").removeprefix("azureml:"),
        description=str(document.get("description") or ""),
        tags=fields.texts(document, "tags"),
        properties=fields.texts(document, "properties"),
    )


def create(
    db: Database,
    clock: Clock,
    stores: Datastores,
    blobs: Blobs,
    resolve: Resolve,
    workspace: str,
    asked: Request,
    owner: str,
) -> DataAsset:
    """Give data a version of a name.

    Raises:
        InvalidSpec: there is data of another kind at its path.
        NotFound: there is nothing at its path.
        Conflict: the version it asks for exists.
    """
    if asked.path.startswith(_SNAPSHOT):
        snapshot = blobs.snapshot(asked.path.removeprefix(_SNAPSHOT))
        uri = _keep(db, stores, blobs, workspace, asked, snapshot)
    else:
        uri = resolve(workspace, asked.type, asked.path)
    return register(db, clock, workspace, asked, uri, owner)


def register(
    db: Database, clock: Clock, workspace: str, asked: Request, uri: str, owner: str
) -> DataAsset:
    """Write the version down. A job's output that has its version already keeps it.

    Raises:
        Conflict: the version it asks for exists.
    """
    with db.write() as connection:
        existing = store.asset_versions.list_in(connection, workspace, asked.name)
        for asset in existing:
            if asked.job and asset.job == asked.job and asset.uri == uri:
                return asset
        numbers = {asset.version for asset in existing}
        version = asked.version or versions.next_of(numbers)
        if version in numbers:
            raise versions.taken("data", asked.name, version)
        asset = DataAsset(
            workspace=workspace,
            name=asked.name,
            version=version,
            type=asked.type,
            uri=uri,
            created_at=clock.now(),
            owner=owner,
            description=asked.description,
            tags=asked.tags,
            properties=asked.properties,
            job=asked.job,
        )
        store.asset_versions.add(connection, asset)
    return asset


def describe(
    db: Database,
    workspace: str,
    name: str,
    version: str,
    description: str,
    tags: Mapping[str, str],
    properties: Mapping[str, str],
) -> DataAsset:
    """Say something else of a version.

    Raises:
        NotFound: there is no such version.
    """
    asset = replace(
        get(db, workspace, name, version),
        description=description,
        tags=dict(tags),
        properties=dict(properties),
    )
    with db.write() as connection:
        store.asset_versions.describe(connection, asset)
    return asset


def of_job(db: Database, workspace: str, job: str) -> list[DataAsset]:
    with db.read() as connection:
        return [
            asset
            for asset in store.asset_versions.list_in(connection, workspace)
            if asset.job == job
        ]


def _keep(
    db: Database,
    stores: Datastores,
    blobs: Blobs,
    workspace: str,
    asked: Request,
    snapshot: Snapshot,
) -> str:
    """Put what was uploaded into its datastore; what is there already stays."""
    found = datastores.get(db, stores, workspace, asked.datastore or BLOB_STORE)
    _suits(asked, snapshot)
    place = datastores.opened(found)
    folder = upload_folder(snapshot.id)
    there = {entry.path: entry.size_bytes for entry in place.walk(folder)}
    rows = []
    for file in snapshot.files:
        path = f"{folder}/{file.path}"
        if there.get(file.path) != file.size:
            source, target = blobs.path(file.sha256), place.local(path)
            if target is not None and found.name in BUILT_IN:
                _link(source, target)
            else:
                with place.writing(path) as writing, open(source, "rb") as reader:
                    while chunk := reader.read(1 << 20):
                        writing.write(chunk)
        entry = place.entry(path)
        rows.append(
            {
                "workspace": workspace,
                "datastore": found.name,
                "path": path,
                "sha256": file.sha256,
                "size_bytes": file.size,
                "mark": entry.mark if entry else "",
            }
        )
    with db.write() as connection:
        store.put_checksums(connection, rows)
    single = snapshot.files[0].path if asked.type == "uri_file" else ""
    return str(DatastoreUri(found.name, f"{folder}/{single}"))


def _suits(asked: Request, snapshot: Snapshot) -> None:
    if asked.type == "uri_file" and len(snapshot.files) != 1:
        raise InvalidSpec(
            f"`type: uri_file` is one file, and {len(snapshot.files)} were uploaded",
            "write `type: uri_folder`",
            at=["type"],
        )
    if asked.type == "mltable" and not any(file.path == "MLTable" for file in snapshot.files):
        raise InvalidSpec(
            "the folder of an mltable holds a file `MLTable`, and this one has none",
            "write `type: uri_folder`, or add the file",
            at=["path"],
        )


def _link(source: Path, target: Path) -> None:
    """One file under two names; nobody changes files of a built-in datastore in place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.unlink(missing_ok=True)
        os.link(source, target)
    except OSError:
        with files.whole(target) as writing, open(source, "rb") as reader:
            shutil.copyfileobj(reader, writing)


def _type(document: Mapping[str, Any]) -> str:
    written = str(document.get("type") or "uri_folder")
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", written).lower().replace("-", "_")
    plain = "mltable" if plain == "ml_table" else plain
    if plain not in DATA_TYPES:
        near = nearest(plain, DATA_TYPES)
        raise InvalidSpec(
            f"`{written}` is no type of data",
            f"did you mean `{near}`?" if near else f"use one of: {', '.join(DATA_TYPES)}",
            at=["type"],
        )
    return plain
