"""Data assets as ARM resources.

Owns: a data asset's properties, and the document that they stand for.
Leaves: the files at a path to data/, versions and lists to assets.py.
Always: uploaded data is in its datastore already; the path of a version never changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchyard.azureml.arm import assets as arm
from torchyard.azureml.arm.assets import AssetVersion, DatastoreUriOf
from torchyard.azureml.arm.resources import Permissions
from torchyard.azureml.common.calls import Call
from torchyard.base.blob_folders import BlobFolders
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data import assets
from torchyard.data.assets import Resolve
from torchyard.data.datastores import Datastores
from torchyard.data.types import DataAsset
from torchyard.workspaces.permissions import Permission

NOUN = "data"


class DataAssets:
    """`resolve` as in data/assets.py."""

    type, noun = "data", NOUN
    permissions = Permissions(actions={"startpendingupload": Permission.UPLOAD})

    def __init__(
        self,
        db: Database,
        clock: Clock,
        stores: Datastores,
        blobs: BlobFolders,
        resolve: Resolve,
        of_blob: DatastoreUriOf,
    ) -> None:
        self._db = db
        self._clock = clock
        self._stores = stores
        self._blobs = blobs
        self._resolve = resolve
        self._of_blob = of_blob

    def list_all(self, call: Call) -> Sequence[AssetVersion]:
        return [
            _version(call, asset) for asset in assets.list_versions(self._db, call.workspace.name)
        ]

    def list_versions(self, call: Call, name: str) -> Sequence[AssetVersion]:
        versions = assets.list_in(self._db, call.workspace.name, name, archived=None)
        # For a name that does not exist, the error names the nearest one.
        versions = versions or [assets.get(self._db, call.workspace.name, name)]
        return [_version(call, asset) for asset in versions]

    def get(self, call: Call, name: str, version: str) -> AssetVersion:
        return _version(call, assets.get(self._db, call.workspace.name, name, version))

    def next_version(self, call: Call, name: str, versions: Sequence[AssetVersion]) -> str:
        return arm.next_version(versions)

    def put(self, call: Call, name: str, version: str) -> tuple[AssetVersion, bool]:
        uri = arm.text_property(call, "dataUri")
        if not uri:
            raise InvalidInput("the data has no `dataUri`", at=["properties", "dataUri"])
        document = {
            **arm.described(call),
            "name": name,
            "version": version,
            "type": arm.text_property(call, "dataType") or "uri_folder",
            "path": arm.short_uri(call, uri, self._of_blob),
        }
        request = assets.read_document(document)
        workspace = call.workspace.name
        existing = self._find(workspace, request.name, version)
        if existing is None:
            asset = assets.create(
                self._db,
                self._clock,
                self._stores,
                self._blobs.of(workspace),
                self._resolve,
                workspace,
                request,
                call.identity.user,
            )
            return _version(call, asset), True
        if existing.type != request.type or (
            existing.uri != request.path
            and existing.uri != self._resolve(workspace, request.type, request.path)
        ):
            raise arm.content_conflict(NOUN, existing.name, version, "place or type")
        changed = assets.describe(
            self._db,
            workspace,
            existing.name,
            version,
            request.description,
            request.tags,
            request.properties,
            user=call.identity.user,
        )
        return _version(call, changed), False

    def archive(self, call: Call, name: str, version: str, archived: bool) -> None:
        assets.archive(
            self._db, call.workspace.name, name, version, archived, user=call.identity.user
        )

    def delete(self, call: Call, name: str, version: str) -> None:
        self.get(call, name, version)
        raise arm.not_deletable("data")

    def _find(self, workspace: str, name: str, version: str) -> DataAsset | None:
        try:
            asset = assets.get(self._db, workspace, name, version)
        except NotFound:
            return None
        return asset if asset.version == version else None


def _version(call: Call, asset: DataAsset) -> AssetVersion:
    return arm.version_of(
        asset,
        type_properties={
            "dataType": asset.type,
            "dataUri": arm.long_uri(call, asset.uri),
            **({"referencedUris": []} if asset.type == "mltable" else {}),
        },
        container_properties={"dataType": asset.type},
    )
