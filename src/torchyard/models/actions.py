"""What can be done with models.

Owns: versions, the model's own copy of its files, archiving and what may change.
Leaves: what a job or a snapshot holds to whoever passes a `FindSource`.
Always: a version's files never change; they are copied before the version exists, so that it
never points at nothing.
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
from torchyard.data.types import MODEL_TYPES
from torchyard.models import store
from torchyard.models.types import FindSource, Model, ModelFile, Source

_NAME = re.compile(r"^[a-zA-Z0-9][\w.-]{0,254}$")
# The last four are said of a model and change nothing: its flavors stand in its `MLmodel`.
_KEYS = (
    "name", "version", "type", "path", "description", "tags", "properties", "stage",
    "$schema", "flavors", "datastore", "id",
)  # fmt: skip
_CHANGES = ("description", "tags", "properties", "stage")
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
            hint = f"did you mean `{near}`?" if near else f"known keys: {', '.join(_KEYS[:-4])}"
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
    return Request(
        name=name,
        path=path,
        type=_type(document.get("type")),
        version=_version(document.get("version")),
        description=str(document.get("description") or ""),
        tags=_texts(document, "tags"),
        properties=_with_stage(_texts(document, "properties"), document),
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
    # Each registration copies into a folder of its own, so that two at once share no file.
    folder = model_folder(asked.name, uuid.uuid4().hex[:12])
    with find(workspace, asked.path) as source:
        _suits(asked, source)
        _version_is_free(db, workspace, asked)
        copied = tuple(
            _copy(datastores, workspace, f"{folder}/{path}", path, file)
            for path, file in source.files
        )
    with db.write() as connection:
        version = asked.version or store.last_version(connection, workspace, asked.name) + 1
        if store.get(connection, workspace, asked.name, version) is not None:
            raise _has_version(asked.name, version)
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
            single=source.single,
        )
        store.add(connection, model)
    return model


def get(db: Database, workspace: str, name: str, version: str = LATEST) -> Model:
    """The one made last that is not archived for `latest`.

    Raises:
        NotFound: with the nearest name, or the versions there are.
    """
    with db.read() as connection:
        known = store.list_all(connection, workspace, name)
        names = [] if known else [one.name for one in store.list_all(connection, workspace)]
    if not known:
        near = nearest(name, sorted(set(names)))
        hint = f"did you mean `{near}`?" if near else "list what exists with `yard model list`"
        raise NotFound(f"model `{name}` does not exist in workspace `{workspace}`", hint)
    if version == LATEST:
        return next((model for model in known if not model.archived), known[0])
    for model in known:
        if str(model.version) == version:
            return model
    raise NotFound(
        f"model `{name}` has no version `{version}`",
        f"it has {', '.join(sorted((str(model.version) for model in known), key=int))}",
    )


def list_in(
    db: Database, workspace: str, name: str = "", archived: bool | None = False
) -> list[Model]:
    """The newest of each name, or all versions of one; `archived` None takes both kinds."""
    with db.read() as connection:
        found = store.list_all(connection, workspace, name)
    found = [model for model in found if archived is None or model.archived is archived]
    if name:
        return found
    newest: dict[str, Model] = {}
    for model in found:
        newest.setdefault(model.name, model)
    return [newest[one] for one in sorted(newest)]


def archive(
    db: Database, workspace: str, name: str, version: str = "", archived: bool = True
) -> Model:
    """Leave a version, or all of them, out of lists; `archived` False shows them again.

    Raises:
        NotFound: there is none.
    """
    found = get(db, workspace, name, version or LATEST)
    with db.write() as connection:
        number = found.version if version else None
        store.change(connection, workspace, name, number, archived=archived)
    return get(db, workspace, name, str(found.version))


def update(
    db: Database, workspace: str, name: str, version: str, changes: Mapping[str, Any]
) -> Model:
    """Change `description`, `tags`, `properties` (both merged, null takes one away) or `stage`.

    Raises:
        InvalidSpec: another key, or a value of the wrong kind.
        NotFound: there is no such version.
    """
    for key in changes:
        if key not in _CHANGES:
            near = nearest(str(key), _CHANGES)
            raise InvalidSpec(
                f"`{key}` of a model can't be changed",
                f"did you mean `{near}`?" if near else "register another version",
                at=[str(key)],
            )
    if not isinstance(changes.get("description") or "", str):
        raise InvalidSpec("`description` must be text", at=["description"])
    number = get(db, workspace, name, version).version
    with db.write() as connection:
        found = store.get(connection, workspace, name, number)
        assert found is not None
        values: dict[str, Any] = {}
        if "description" in changes:
            values["description"] = changes["description"] or ""
        if "tags" in changes:
            values["tags"] = _merged(found.tags, changes, "tags")
        if "properties" in changes or "stage" in changes:
            properties = _merged(found.properties, changes, "properties")
            values["properties"] = _with_stage(properties, changes)
        if values:
            store.change(connection, workspace, name, number, **values)
    return get(db, workspace, name, str(number))


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


def _suits(asked: Request, source: Source) -> None:
    paths = [path for path, _ in source.files]
    if asked.type == "mlflow_model" and "MLmodel" not in paths:
        raise InvalidSpec(
            f"`{asked.path}` is no MLflow model: it has no file `MLmodel`",
            "name the folder that `mlflow.<flavor>.log_model` wrote, or use `type: custom_model`",
            at=["path"],
        )
    if asked.type == "triton_model" and source.single:
        raise InvalidSpec(
            "a triton_model is a folder, and its path names one file",
            "name the model repository's folder, or use `type: custom_model`",
            at=["path"],
        )


def _version_is_free(db: Database, workspace: str, asked: Request) -> None:
    """Before anything is copied; the write looks again."""
    if asked.version is None:
        return
    with db.read() as connection:
        if store.get(connection, workspace, asked.name, asked.version) is not None:
            raise _has_version(asked.name, asked.version)


def _has_version(name: str, version: int) -> Conflict:
    return Conflict(
        f"model `{name}` has a version {version} already",
        "leave `version` out to get the next one",
        at=["version"],
    )


def _type(written: Any) -> str:
    """In any case, and in camelCase."""
    plain = str(written or "custom_model").replace("_", "").replace("-", "").lower()
    for kind in MODEL_TYPES:
        if plain == kind.replace("_", ""):
            return kind
    near = nearest(str(written), MODEL_TYPES)
    raise InvalidSpec(
        f"`{written}` is no type of a model",
        f"did you mean `{near}`?" if near else f"use one of: {', '.join(MODEL_TYPES)}",
        at=["type"],
    )


def _merged(old: Mapping[str, str], changes: Mapping[str, Any], key: str) -> dict[str, str]:
    given = changes.get(key) or {}
    if not isinstance(given, Mapping):
        raise InvalidSpec(f"`{key}` must be a mapping of texts", at=[key])
    kept = {**old, **{str(name): value for name, value in given.items()}}
    return {name: str(value) for name, value in kept.items() if value is not None}


def _with_stage(properties: dict[str, str], document: Mapping[str, Any]) -> dict[str, str]:
    stage = document.get("stage")
    return {**properties, "stage": str(stage)} if stage else properties


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
