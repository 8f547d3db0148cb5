"""What can be done with models.

Owns: versions, the model's own copy of its files, archiving and what may change.
Leaves: finding the files of a job or a snapshot to the caller's `FindSource`.
Always: a version's files never change; they are copied before the version exists, so that it
never points at nothing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from torchyard.assets import versions
from torchyard.assets.sources import FindSource, Source
from torchyard.assets.versioned_assets import VersionedAssets
from torchyard.base import fields, files
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidSpec, NotFound
from torchyard.data.datastores import BLOB_STORE, Datastores, model_folder
from torchyard.models import documents, onnx_files, registry, signatures, store
from torchyard.models.documents import ModelRequest
from torchyard.models.types import Model, ModelFile
from torchyard.workspaces import ownership

_CHANGES = ("description", "tags", "properties", "stage")
LATEST = versions.LATEST
_TOP = model_folder("name", "unique").count("/") + 1


class _Models(VersionedAssets[Model]):
    """A version may be named by an alias, and a name may be registered without a version."""

    def get(self, db: Database, workspace: str, name: str, version: str = LATEST) -> Model:
        """
        Raises:
            NotFound: with the nearest name, or the versions there are.
        """
        with db.read() as connection:
            models = store.versions.list_in(connection, workspace, name)
            registered = store.name_row(connection, workspace, name)
            all_names = [] if models else store.names_in(connection, workspace)
        if not models:
            if registered is not None:
                raise NotFound(
                    f"model `{name}` has no version", "register one: `yard model create`"
                )
            names = [other.name for other in all_names]
            raise versions.no_such_name("model", workspace, name, names)
        if registered is not None and not version.isdecimal():
            version = str(registered.aliases.get(version, version))
        return versions.pick("model", name, version, models)


_models = _Models("model", store.versions, ownership.Assets())
get = _models.get
list_in = _models.list_in
list_versions = _models.list_versions
archive = _models.archive


def register(
    db: Database,
    clock: Clock,
    datastores: Datastores,
    find: FindSource,
    workspace: str,
    document: Mapping[str, Any],
    owner: str,
) -> Model:
    """Copy the files into the datastore and register them as the next version.

    Raises:
        InvalidSpec: the document is wrong.
        NotFound: there is nothing at its path.
        Conflict: the version that it names exists.
    """
    request = documents.read(document)
    with find(workspace, request.path) as source:
        _check_type(request, source)
        return keep(db, clock, datastores, workspace, request, source, owner)


def keep(
    db: Database,
    clock: Clock,
    datastores: Datastores,
    workspace: str,
    request: ModelRequest,
    source: Source,
    owner: str,
) -> Model:
    """Copy the files of `source`, if it has any, and register a version of them.

    Raises:
        Conflict: the version that it names exists.
        Forbidden: the name is another's.
    """
    _check_version_is_free(db, workspace, request, owner)
    # Each registration copies into its own folder, so that two at once share no file.
    top = model_folder(_as_folder(request.name), uuid.uuid4().hex[:12]) if source.files else ""
    if request.folder:
        # A snapshot does not say whether its one file was named, or the folder that holds it.
        source = replace(source, single=False)
    last = f"/{_as_folder(request.folder)}" if request.folder else _last_of(request.path)
    folder = top if source.single or not top else f"{top}{last}"
    try:
        copied = tuple(
            _copy(datastores, workspace, f"{folder}/{path}", path, file)
            for path, file in source.files
        )
        return _add_version(db, clock, workspace, request, source, owner, folder, copied)
    except BaseException:
        if top:
            datastores.delete(workspace, BLOB_STORE, top)
        raise


def _add_version(
    db: Database,
    clock: Clock,
    workspace: str,
    request: ModelRequest,
    source: Source,
    owner: str,
    folder: str,
    copied: tuple[ModelFile, ...],
) -> Model:
    now = clock.now()
    signature, properties = signatures.read(source)
    with db.write() as connection:
        name = registry.ensure(connection, workspace, request.name, now)
        existing = store.versions.list_in(connection, workspace, request.name)
        _models.refuse_adding(connection, existing, owner)
        version = request.version or name.last_version + 1
        if store.versions.get(connection, workspace, request.name, version) is not None:
            raise versions.taken("model", request.name, version)
        model = Model(
            workspace=workspace,
            name=request.name,
            version=version,
            type=request.type,
            source=request.path,
            folder=folder,
            job=request.job or source.job,
            created_at=now,
            owner=owner,
            description=request.description,
            tags=request.tags,
            properties={**properties, **request.properties},
            files=copied,
            single=source.single,
            updated_at=now,
            run_link=request.run_link,
            model_id=request.model_id,
            environment=source.environment,
            signature=signature,
        )
        store.versions.add(connection, model)
        store.change_name(
            connection,
            workspace,
            request.name,
            last_version=max(version, name.last_version),
            updated_at=now,
        )
    return model


def update(
    db: Database,
    clock: Clock,
    workspace: str,
    name: str,
    version: str,
    changes: Mapping[str, Any],
    *,
    user: str,
) -> Model:
    """Change `description`, `tags`, `properties` (both merged, null removes one) or `stage`.

    Raises:
        InvalidSpec: another key, or a value of the wrong kind.
        NotFound: the version does not exist.
        Forbidden: it is another's.
    """
    fields.refuse_unchangeable(changes, _CHANGES, "a model", "register another version")
    fields.text(changes, "description")
    number = get(db, workspace, name, version).version
    with db.write() as connection:
        model = store.versions.get(connection, workspace, name, number)
        assert model is not None
        _models.refuse_changing(connection, model, user)
        values: dict[str, Any] = {}
        if "description" in changes:
            values["description"] = changes["description"] or ""
        if "tags" in changes:
            values["tags"] = fields.merged(model.tags, changes, "tags")
        if "properties" in changes or "stage" in changes:
            properties = fields.merged(model.properties, changes, "properties")
            values["properties"] = documents.with_stage(properties, changes)
        if values:
            store.versions.change(
                connection, workspace, name, number, updated_at=clock.now(), **values
            )
    return get(db, workspace, name, str(number))


def delete(
    db: Database,
    clock: Clock,
    datastores: Datastores,
    workspace: str,
    name: str,
    version: int,
    *,
    user: str,
) -> None:
    """Delete a version and its files; its number is not used again.

    Raises:
        NotFound: the version does not exist.
        Forbidden: it is another's.
    """
    model = get(db, workspace, name, str(version))
    with db.read() as connection:
        _refuse_deleting(connection, model, user)
    delete_rows(db, clock, model)
    _delete_files(datastores, model)


def delete_rows(db: Database, clock: Clock, model: Model) -> None:
    """Delete a version and its aliases; its files stay, and its number is not used again."""
    workspace, name = model.workspace, model.name
    with db.write() as connection:
        store.versions.delete(connection, workspace, name, model.version)
        registry.remove_aliases_of(connection, workspace, name, model.version, clock.now())


def _refuse_deleting(connection: Connection, model: Model, user: str) -> None:
    """
    Raises:
        Forbidden: it is another's.
    """
    subject = f"model `{model.name}:{model.version}`"
    ownership.refuse(
        connection, ownership.ASSET_DELETE, model.workspace, user, model.owner, subject
    )


def delete_all(
    db: Database, datastores: Datastores, workspace: str, name: str, *, user: str
) -> None:
    """Delete a name with all its versions and their files.

    Raises:
        NotFound: the name does not exist.
        Forbidden: one of them is another's.
    """
    registry.get(db, workspace, name)
    with db.write() as connection:
        models = store.versions.list_in(connection, workspace, name)
        for model in models:
            _refuse_deleting(connection, model, user)
        store.versions.delete(connection, workspace, name, None)
        store.drop_name(connection, workspace, name)
    for model in models:
        _delete_files(datastores, model)


def of_job(db: Database, workspace: str, job: str) -> list[Model]:
    with db.read() as connection:
        return store.of_job(connection, workspace, job)


def file(datastores: Datastores, model: Model, path: str) -> Path:
    """
    Raises:
        NotFound: the model has no such file.
    """
    if path not in [model_file.path for model_file in model.files]:
        raise NotFound(f"model `{model.name}:{model.version}` has no file `{path}`")
    return datastores.file(model.workspace, BLOB_STORE, f"{model.folder}/{path}")


def _check_type(request: ModelRequest, source: Source) -> None:
    paths = [path for path, _ in source.files]
    if request.type == "mlflow_model" and "MLmodel" not in paths:
        raise InvalidSpec(
            f"`{request.path}` is not an MLflow model: it has no file `MLmodel`",
            "name the folder that `mlflow.<flavor>.log_model` wrote, or use `type: custom_model`",
            at=["path"],
        )
    if request.is_onnx:
        _check_onnx(request, source)
    if request.type == "triton_model" and source.single:
        raise InvalidSpec(
            "a triton_model is a folder, but the path names one file",
            "name the model repository's folder, or use `type: custom_model`",
            at=["path"],
        )


def _check_onnx(request: ModelRequest, source: Source) -> None:
    file = signatures.onnx_file(source)
    if file is None:
        raise InvalidSpec(
            f"`{request.path}` does not hold one ONNX file",
            "write one file that ends with `.onnx` into the folder, and its weights beside it",
            at=["path"],
        )
    try:
        onnx_files.read(file)
    except onnx_files.NotOnnx as error:
        raise InvalidSpec(
            f"the ONNX file of `{request.path}` can't be read: {error}",
            "export it again, for example with `torchyard.train.onnx.export`",
            at=["path"],
        ) from error


def _check_version_is_free(db: Database, workspace: str, request: ModelRequest, user: str) -> None:
    """Fail before anything is copied; the write checks again."""
    with db.read() as connection:
        existing = store.versions.list_in(connection, workspace, request.name)
        _models.refuse_adding(connection, existing, user)
        if request.version is None:
            return
        if store.versions.get(connection, workspace, request.name, request.version) is not None:
            raise versions.taken("model", request.name, request.version)


def _delete_files(datastores: Datastores, model: Model) -> None:
    # The row is deleted first, so that no version ever points at nothing.
    if model.folder:
        datastores.delete(model.workspace, BLOB_STORE, top_folder(model))


def top_folder(model: Model) -> str:
    """The folder of the default datastore that is the model's alone; empty without files here."""
    return "/".join(model.folder.split("/")[:_TOP])


def _last_of(path: str) -> str:
    """The last part of a path: clients download a model into a folder of that name."""
    above, _, last = path.rstrip("/").rpartition("/")
    return f"/{_as_folder(last)}" if above and last else ""


def _as_folder(name: str) -> str:
    """A valid name of a folder; the folder inside makes it unique."""
    return re.sub(r"[^\w.-]", "_", name).strip(".")[:60] or "model"


def _copy(
    datastores: Datastores, workspace: str, stored_at: str, path: str, source: Path
) -> ModelFile:
    target = files.inside(datastores.root(workspace, BLOB_STORE), stored_at)
    stored = files.copy(source, target)
    return ModelFile(path, stored.sha256, stored.size_bytes)
