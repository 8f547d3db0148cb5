"""What can be done with models.

Owns: versions, the model's own copy of its files.
Leaves: what a job or a snapshot holds to whoever passes a `FindSource`.
Always: a version once given never changes; its files are copied before the version exists, so
that it never points at nothing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base import files
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec, NotFound, nearest
from torchyard.data.datastores import BLOB_STORE, Datastores, model_folder
from torchyard.models import store
from torchyard.models.types import FindSource, Model, ModelFile

_NAME = re.compile(r"^[a-zA-Z0-9][\w.-]{0,254}$")
_KEYS = ("name", "version", "type", "path", "description", "tags", "properties", "$schema")
_TYPES = ("custom_model", "mlflow_model")
LATEST = "latest"


@dataclass(frozen=True)
class Request:
    """A model's document, read."""

    name: str
    path: str
    type: str
    version: int | None
    description: str
    tags: dict[str, str]
    properties: dict[str, str]


def read_document(document: Mapping[str, Any]) -> Request:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    for key in document:
        if key not in _KEYS:
            near = nearest(str(key), _KEYS)
            hint = f"did you mean `{near}`?" if near else f"known keys: {', '.join(_KEYS[:-1])}"
            raise InvalidSpec(f"unknown key `{key}`", hint, at=[str(key)])
    name = document.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidSpec(
            f"`{name}` is no name for a model" if name else "the model has no `name`",
            "letters, digits, `_`, `-` and `.`, beginning with a letter or digit",
            at=["name"],
        )
    path = document.get("path")
    if not isinstance(path, str) or not path:
        raise InvalidSpec(
            "the model has no `path`",
            "name a local file or folder, or "
            "`azureml://jobs/<job>/outputs/artifacts/paths/outputs/model.pt`",
            at=["path"],
        )
    kind = str(document.get("type") or "custom_model").lower()
    if kind not in _TYPES:
        raise InvalidSpec(
            f"`{kind}` is no type of a model", f"use one of: {', '.join(_TYPES)}", at=["type"]
        )
    return Request(
        name=name,
        path=path,
        type=kind,
        version=_version(document.get("version")),
        description=str(document.get("description") or ""),
        tags=_texts(document, "tags"),
        properties=_texts(document, "properties"),
    )


def register(
    db: Database,
    clock: Clock,
    datastores: Datastores,
    find: FindSource,
    workspace: str,
    document: Mapping[str, Any],
    owner: str,
) -> Model:
    """Copy the files into the datastore and give them the next version.

    Raises:
        InvalidSpec: the document is wrong.
        NotFound: there is nothing at its path.
        Conflict: the version it asks for exists.
    """
    asked = read_document(document)
    source = find(workspace, asked.path)
    # Each registration copies into a folder of its own, so that two at once share no file.
    folder = model_folder(asked.name, uuid.uuid4().hex[:12])
    copied = tuple(
        _copy(datastores, workspace, f"{folder}/{path}", path, file) for path, file in source.files
    )
    with db.write() as connection:
        version = asked.version or store.last_version(connection, workspace, asked.name) + 1
        if store.get(connection, workspace, asked.name, version) is not None:
            raise Conflict(
                f"model `{asked.name}` has a version {version} already",
                "leave `version` out to get the next one",
            )
        model = Model(
            workspace=workspace,
            name=asked.name,
            version=version,
            type=asked.type,
            source=asked.path,
            folder=folder,
            job=source.job,
            created_at=clock.now(),
            owner=owner,
            description=asked.description,
            tags=asked.tags,
            properties=asked.properties,
            files=copied,
        )
        store.add(connection, model)
    return model


def get(db: Database, workspace: str, name: str, version: str = LATEST) -> Model:
    """
    Raises:
        NotFound: with the nearest name, or the versions there are.
    """
    with db.read() as connection:
        known = store.versions(connection, workspace, name)
        names = [model.name for model in store.newest(connection, workspace)]
    if not known:
        near = nearest(name, names)
        hint = f"did you mean `{near}`?" if near else "list what exists with `yard model list`"
        raise NotFound(f"model `{name}` does not exist in workspace `{workspace}`", hint)
    if version == LATEST:
        return known[0]
    for model in known:
        if str(model.version) == version:
            return model
    raise NotFound(
        f"model `{name}` has no version `{version}`",
        f"it has {', '.join(str(model.version) for model in reversed(known))}",
    )


def newest(db: Database, workspace: str) -> list[Model]:
    with db.read() as connection:
        return store.newest(connection, workspace)


def versions(db: Database, workspace: str, name: str) -> list[Model]:
    with db.read() as connection:
        return store.versions(connection, workspace, name)


def of_job(db: Database, workspace: str, job: str) -> list[Model]:
    with db.read() as connection:
        return store.of_job(connection, workspace, job)


def file(datastores: Datastores, model: Model, path: str) -> Path:
    """
    Raises:
        NotFound: the model has no such file.
    """
    if path not in [known.path for known in model.files]:
        raise NotFound(f"model `{model.name}:{model.version}` has no file `{path}`")
    return datastores.file(model.workspace, BLOB_STORE, f"{model.folder}/{path}")


def _copy(
    datastores: Datastores, workspace: str, stored_at: str, path: str, source: Path
) -> ModelFile:
    target = files.inside(datastores.root(workspace, BLOB_STORE), stored_at)
    stored = files.copy(source, target)
    return ModelFile(path, stored.sha256, stored.size_bytes)


def _version(value: Any) -> int | None:
    if value is None:
        return None
    if not str(value).isdigit() or int(value) < 1:
        raise InvalidSpec(
            f"`{value}` is no version of a model", "use a whole number, or leave it out",
            at=["version"],
        )  # fmt: skip
    return int(value)


def _texts(document: Mapping[str, Any], key: str) -> dict[str, str]:
    values = document.get(key) or {}
    if not isinstance(values, Mapping):
        raise InvalidSpec(f"`{key}` must be a mapping of texts", at=[key])
    return {str(name): str(value) for name, value in values.items()}
