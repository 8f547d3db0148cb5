"""Models as ARM resources.

Owns: a model's properties, and the document that they stand for.
Leaves: copying files and giving versions to models/, lists to assets.py.
Always: `modelUri` is the model's own copy of its files; the source of that copy is accepted as
equal when the model is put again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchyard.assets.sources import FindSource
from torchyard.azureml.arm import assets as arm
from torchyard.azureml.arm.assets import AssetVersion, DatastoreUriOf
from torchyard.azureml.arm.resources import Permissions
from torchyard.azureml.common.calls import Call
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data.datastores import BLOB_STORE, Datastores
from torchyard.data.uris import DatastoreUri
from torchyard.models import actions, registry
from torchyard.models.types import Model
from torchyard.workspaces.permissions import Permission

NOUN = "model"
_STAGE = "stage"


class ModelAssets:
    type, noun = "models", NOUN
    permissions = Permissions(actions={"startpendingupload": Permission.UPLOAD})

    def __init__(
        self,
        db: Database,
        clock: Clock,
        stores: Datastores,
        find: FindSource,
        of_blob: DatastoreUriOf,
        refuse_deployed: Callable[[str, str, str], None],
    ) -> None:
        self._db = db
        self._clock = clock
        self._stores = stores
        self._find = find
        self._of_blob = of_blob
        self._refuse_deployed = refuse_deployed

    def list_all(self, call: Call) -> Sequence[AssetVersion]:
        return [
            _version(call, model) for model in actions.list_versions(self._db, call.workspace.name)
        ]

    def list_versions(self, call: Call, name: str) -> Sequence[AssetVersion]:
        versions = actions.list_in(self._db, call.workspace.name, name, archived=None)
        # For a name that does not exist, the error names the nearest one.
        versions = versions or [actions.get(self._db, call.workspace.name, name)]
        return [_version(call, model) for model in versions]

    def get(self, call: Call, name: str, version: str) -> AssetVersion:
        return _version(call, actions.get(self._db, call.workspace.name, name, version))

    def next_version(self, call: Call, name: str, versions: Sequence[AssetVersion]) -> str:
        return str(registry.get(self._db, call.workspace.name, name).last_version + 1)

    def put(self, call: Call, name: str, version: str) -> tuple[AssetVersion, bool]:
        uri = arm.text_property(call, "modelUri")
        if not uri:
            raise InvalidInput("the model has no `modelUri`", at=["properties", "modelUri"])
        document: dict[str, Any] = {
            **arm.described(call),
            "name": name,
            "version": version,
            "type": arm.text_property(call, "modelType") or "custom_model",
            "path": arm.short_uri(call, uri, self._of_blob),
        }
        stage = arm.text_property(call, _STAGE)
        if stage:
            document[_STAGE] = stage
        existing = self._existing(call, name, version)
        if existing is None:
            model = actions.register(
                self._db,
                self._clock,
                self._stores,
                self._find,
                call.workspace.name,
                document,
                call.identity.user,
            )
            return _version(call, model), True
        if _bare(document["path"]) not in (_bare(existing.source), _bare(uri_of(existing))):
            raise arm.content_conflict(NOUN, existing.name, version, "place")
        changed = actions.update(
            self._db,
            self._clock,
            call.workspace.name,
            name,
            version,
            _changes(existing, document),
            user=call.identity.user,
        )
        return _version(call, changed), False

    def archive(self, call: Call, name: str, version: str, archived: bool) -> None:
        actions.archive(
            self._db, call.workspace.name, name, version, archived, user=call.identity.user
        )

    def delete(self, call: Call, name: str, version: str) -> None:
        model = actions.get(self._db, call.workspace.name, name, version)
        self._refuse_deployed(call.workspace.name, name, str(model.version))
        actions.delete(
            self._db,
            self._clock,
            self._stores,
            call.workspace.name,
            name,
            model.version,
            user=call.identity.user,
        )

    def _existing(self, call: Call, name: str, version: str) -> Model | None:
        try:
            model = actions.get(self._db, call.workspace.name, name, version)
        except NotFound:
            return None
        return model if str(model.version) == version else None


def uri_of(model: Model) -> str:
    """The URI of its files."""
    if not model.files:
        return model.source
    path = f"{model.folder}/{model.files[0].path}" if model.single else model.folder
    return str(DatastoreUri(BLOB_STORE, path))


def _changes(before: Model, document: Mapping[str, Any]) -> dict[str, Any]:
    """What a PUT changes: everything but the stage, which stays unless another is named."""
    changes: dict[str, Any] = {"description": document["description"]}
    for key, old in (("tags", before.tags), ("properties", before.properties)):
        removed = {name: None for name in old if name != _STAGE}
        changes[key] = {**removed, **document[key]}
    if _STAGE in document:
        changes[_STAGE] = document[_STAGE]
    return changes


def _bare(uri: str) -> str:
    return uri.rstrip("/")


def _version(call: Call, model: Model) -> AssetVersion:
    return AssetVersion(
        name=model.name,
        version=str(model.version),
        created_at=model.created_at,
        owner=model.owner,
        description=model.description,
        tags=model.tags,
        properties={key: text for key, text in model.properties.items() if key != _STAGE},
        archived=model.archived,
        type_properties={
            "modelType": model.type,
            "modelUri": arm.long_uri(call, uri_of(model)),
            "flavors": {},
            "stage": model.stage or None,
            "jobName": model.job or None,
        },
        modified_at=model.updated_at,
    )
