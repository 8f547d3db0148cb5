"""Data assets: data with a name and versions.

Owns: the asset's document, versions, archiving, deleting, where uploaded files are put.
Leaves: what a path means to actions.py, finding a job's outputs to the caller's `Resolve`.
Always: of an existing version only description, tags and properties change; uploaded files are in
the datastore before the version exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from torchyard.assets import deleted_versions, versions
from torchyard.assets.versioned_assets import VersionedAssets
from torchyard.base import fields
from torchyard.base.blobs import Blobs, Snapshot
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.documents.checks import At, By
from torchyard.base.documents.models import declared, rule
from torchyard.base.errors import InvalidSpec, NotFound, did_you_mean
from torchyard.data import datastores, folders, store
from torchyard.data.datastores import BLOB_STORE, BUILT_IN, Datastores, upload_folder
from torchyard.data.documents import AssetFile, as_text
from torchyard.data.types import DATA_TYPES, DataAsset, Datastore, Entry, Files
from torchyard.data.uris import DatastoreUri
from torchyard.workspaces import ownership

_CHANGES = ("description", "tags", "properties")
_SNAPSHOT = "snapshot:"
_TRIES = 3
LATEST = versions.LATEST

_assets = VersionedAssets("data", store.asset_versions, ownership.Assets())
get = _assets.get
list_in = _assets.list_in
list_versions = _assets.list_versions
archive = _assets.archive

# (workspace, type, path of an asset) to a pinned URI.
Resolve = Callable[[str, str, str], str]


@dataclass(frozen=True)
class DataRequest:
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


def _type(value: Any, at: At) -> str:
    written = str(value or "uri_folder")
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", written).lower().replace("-", "_")
    plain = "mltable" if plain == "ml_table" else plain
    if plain not in DATA_TYPES:
        raise InvalidSpec(f"`{written}` is not a data type", did_you_mean(plain, DATA_TYPES), at=at)
    return plain


class DataFile(AssetFile):
    subject: ClassVar[str] = "the data asset's document"

    path: Any = declared(None, "a file or folder here, a URL, a place in a datastore")
    type: str = declared(
        "uri_folder", "`uri_folder` (the default), `uri_file` or `mltable`", By(_type)
    )
    datastore: str = declared("", "where files from here are kept", By(as_text))

    @rule("path")
    def _path(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidSpec(
                "the data asset has no `path`",
                "name a local file or folder, a URL, or `azureml://datastores/<name>/paths/<path>`",
                at=["path"],
            )


def read_document(document: Mapping[str, Any]) -> DataRequest:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    file = DataFile.read(document)
    return DataRequest(
        name=file.name,
        path=file.path,
        type=file.type,
        version=file.version,
        datastore=file.datastore.removeprefix("azureml:"),
        description=file.description,
        tags=file.tags,
        properties=file.properties,
    )


def create(
    db: Database,
    clock: Clock,
    stores: Datastores,
    blobs: Blobs,
    resolve: Resolve,
    workspace: str,
    request: DataRequest,
    owner: str,
) -> DataAsset:
    """Register the next version of a name, or the version that the document names.

    Raises:
        InvalidSpec: the data at its path is of another type.
        NotFound: there is nothing at its path.
        Conflict: the version that it names exists.
    """
    if not request.path.startswith(_SNAPSHOT):
        uri = resolve(workspace, request.type, request.path)
        return register(db, clock, workspace, request, uri, owner, stores)
    snapshot = blobs.snapshot(request.path.removeprefix(_SNAPSHOT))
    for tries_left in reversed(range(_TRIES)):
        uri = _store_files(db, stores, blobs, workspace, request, snapshot)
        try:
            return register(db, clock, workspace, request, uri, owner, stores)
        except NotFound as error:
            # The last version with these files was deleted since they were found to be there.
            if error.code != datastores.DATA_DELETED or not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def register(
    db: Database,
    clock: Clock,
    workspace: str,
    request: DataRequest,
    uri: str,
    owner: str,
    stores: Datastores | None = None,
) -> DataAsset:
    """Add the version. An output of a job that is registered already keeps its version.

    Args:
        stores: where to check that the files were not deleted meanwhile; None does not check.

    Raises:
        Conflict: the version that it names exists.
        Forbidden: the name is another's.
        NotFound: the files were deleted.
    """
    with db.write() as connection:
        if stores is not None:
            datastores.refuse_deleted(stores, workspace, uri)
        existing = store.asset_versions.list_in(connection, workspace, request.name)
        for asset in existing:
            if request.job and asset.job == request.job and asset.uri == uri:
                return asset
        _assets.refuse_adding(connection, existing, owner)
        numbers = {asset.version for asset in existing}
        deleted = deleted_versions.of_name(connection, workspace, "data", request.name)
        version = request.version or versions.next_of(numbers | deleted)
        if version in deleted:
            raise deleted_versions.used_again("data", request.name, version)
        if version in numbers:
            raise versions.taken("data", request.name, version)
        asset = DataAsset(
            workspace=workspace,
            name=request.name,
            version=version,
            type=request.type,
            uri=uri,
            created_at=clock.now(),
            owner=owner,
            description=request.description,
            tags=request.tags,
            properties=request.properties,
            job=request.job,
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
    *,
    user: str,
) -> DataAsset:
    """Replace a version's description, tags and properties.

    Raises:
        NotFound: the version does not exist.
        Forbidden: it is another's.
    """
    asset = replace(
        get(db, workspace, name, version),
        description=description,
        tags=dict(tags),
        properties=dict(properties),
    )
    with db.write() as connection:
        _assets.refuse_changing(connection, asset, user)
        store.asset_versions.describe(connection, asset)
    return asset


def update(
    db: Database, workspace: str, name: str, version: str, changes: Mapping[str, Any], *, user: str
) -> DataAsset:
    """Change `description`, `tags` and `properties`: both are merged, and null removes one.

    Raises:
        InvalidSpec: another key, or a value of the wrong kind.
        NotFound: the version does not exist.
    """
    fields.refuse_unchangeable(changes, _CHANGES, "a data asset", "register another version")
    fields.text(changes, "description")
    asset = get(db, workspace, name, version)
    return describe(
        db,
        workspace,
        asset.name,
        asset.version,
        changes.get("description", asset.description) or "",
        fields.merged(asset.tags, changes, "tags"),
        fields.merged(asset.properties, changes, "properties"),
        user=user,
    )


def all_versions(db: Database, workspace: str, name: str) -> tuple[list[DataAsset], set[str]]:
    """Every version of a name, archived ones too, and the numbers of those that were deleted."""
    with db.read() as connection:
        existing = store.asset_versions.list_in(connection, workspace, name)
        return existing, deleted_versions.of_name(connection, workspace, "data", name)


def of_job(db: Database, workspace: str, job: str) -> list[DataAsset]:
    with db.read() as connection:
        return [
            asset
            for asset in store.asset_versions.list_in(connection, workspace)
            if asset.job == job
        ]


def delete(db: Database, workspace: str, name: str, version: str) -> None:
    """Delete a version; its files stay, and its number is not used again.

    Raises:
        NotFound: the version does not exist.
    """
    exact = get(db, workspace, name, version).version
    with db.write() as connection:
        store.asset_versions.delete(connection, workspace, name, exact)
        deleted_versions.add(connection, workspace, "data", name, exact)


def _store_files(
    db: Database,
    stores: Datastores,
    blobs: Blobs,
    workspace: str,
    request: DataRequest,
    snapshot: Snapshot,
) -> str:
    """Copy uploaded files into their datastore, unless they are there already."""
    datastore = datastores.get(db, stores, workspace, request.datastore or BLOB_STORE)
    _check_files(request, snapshot)
    destination = datastores.open_files(db, stores, datastore)
    folder = upload_folder(snapshot.id)
    existing = {entry.path: entry for entry in destination.walk(folder)}
    rows = []
    with _putting(stores, destination, datastore, blobs) as put:
        for file in snapshot.files:
            path = f"{folder}/{file.path}"
            entry = existing.get(file.path)
            if entry is None or entry.size_bytes != file.size:
                entry = put(path, file.sha256)
            rows.append(
                {
                    "workspace": workspace,
                    "datastore": datastore.name,
                    "path": path,
                    "sha256": file.sha256,
                    "size_bytes": file.size,
                    "mark": entry.mark if entry else "",
                }
            )
    with db.write() as connection:
        store.put_checksums(connection, rows)
    single = snapshot.files[0].path if request.type == "uri_file" else ""
    return str(DatastoreUri(datastore.name, f"{folder}/{single}"))


def _check_files(request: DataRequest, snapshot: Snapshot) -> None:
    if request.type == "uri_file" and len(snapshot.files) != 1:
        raise InvalidSpec(
            f"`type: uri_file` takes one file, but {len(snapshot.files)} were uploaded",
            "write `type: uri_folder`",
            at=["type"],
        )
    if request.type == "mltable" and not any(file.path == "MLTable" for file in snapshot.files):
        raise InvalidSpec(
            "the folder of an mltable must hold a file `MLTable`, and this one does not",
            "write `type: uri_folder`, or add the file",
            at=["path"],
        )


@contextmanager
def _putting(
    stores: Datastores, destination: Files, datastore: Datastore, blobs: Blobs
) -> Iterator[Callable[[str, str], Entry | None]]:
    """Puts a blob at a path, as a hard link where possible: files of a built-in datastore are never
    changed in place.
    """

    def copy(path: str, sha256: str) -> Entry | None:
        with destination.writing(path) as writing, open(blobs.path(sha256), "rb") as reader:
            while chunk := reader.read(1 << 20):
                writing.write(chunk)
        return destination.entry(path)

    if datastore.name not in BUILT_IN:
        yield copy
        return
    with folders.linking(stores.root(datastore.workspace, datastore.name)) as link:

        def link_or_copy(path: str, sha256: str) -> Entry | None:
            try:
                return link(path, blobs.path(sha256))
            except OSError:
                return copy(path, sha256)

        yield link_or_copy
