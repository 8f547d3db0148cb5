"""Logged models: models that a run logged, before anyone registers them.

Owns: the folders of their files, their status, tags and parameters, the runs that use or made them.
Leaves: what a run is to jobs/; here it is the name of its job.
Always: the files of a run's model are among the run's artifacts, the newest of a name below that
name, so that copying the artifacts copies the model; no two models share a folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection

from torchyard.base import files
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data.datastores import ARTIFACT_STORE, Datastores, artifacts_of
from torchyard.models import logged_store as store
from torchyard.models.types import LoggedMetric, LoggedModel, RunModel

PENDING, READY, FAILED, UNSPECIFIED = STATUSES = ("PENDING", "READY", "FAILED", "UNSPECIFIED")
_BAD_CHARACTERS = ("/", ":", ".", "%", '"', "'")
_NAME_MAX_BYTES = 200
# Changes of tags, or a function from the current tags to changes, called inside the transaction.
Tags = Mapping[str, str | None] | Callable[[Mapping[str, str]], Mapping[str, str | None]]
# Folders of every job's artifacts; a model of that name gets another folder.
_RESERVED = frozenset({"outputs", "logs", "user_logs", "system_logs"})


def create(
    db: Database,
    clock: Clock,
    datastores: Datastores,
    workspace: str,
    experiment_id: int,
    name: str,
    run: str = "",
    beside_run: bool = False,
    type: str = "",
    tags: Mapping[str, str] | None = None,
    params: Mapping[str, str] | None = None,
) -> LoggedModel:
    """Create a Pending model with a new id, of the run `run` if it is not empty.

    Args:
        beside_run: the run is a job of this server, and the files go among its artifacts.

    Raises:
        InvalidInput: the name is not valid.
    """
    _check_name(name)
    model_id = f"m-{uuid.uuid4().hex}"
    now = clock.now()
    model = LoggedModel(
        id=model_id,
        workspace=workspace,
        experiment_id=experiment_id,
        name=name,
        run=run,
        folder=f"LoggedModels/{model_id}",
        type=type,
        status=PENDING,
        created_at=now,
        updated_at=now,
        tags=dict(tags or {}),
        params=dict(params or {}),
    )
    with db.write() as connection:
        if beside_run:
            folder = _free_folder(connection, datastores, workspace, run, name)
            model = replace(model, folder=folder or f"{artifacts_of(run)}/{name}-{model_id}")
        store.add(connection, model)
    return model


def get(db: Database, workspace: str, model_id: str, deleted: bool = False) -> LoggedModel:
    """
    Args:
        deleted: find deleted ones, too.

    Raises:
        NotFound: there is none.
    """
    with db.read() as connection:
        model = store.get(connection, workspace, model_id)
    if model is None or (model.deleted and not deleted):
        raise NotFound(f"Logged model with ID '{model_id[:100]}' not found.")
    return model


def list_in(db: Database, workspace: str, experiment_ids: Collection[int]) -> list[LoggedModel]:
    """Newest first."""
    with db.read() as connection:
        return store.in_experiments(connection, workspace, experiment_ids)


def names_in(db: Database, workspace: str) -> list[str]:
    """Names of the models that no run made."""
    with db.read() as connection:
        return store.names_without_run(connection, workspace)


def metrics_of(
    db: Database, workspace: str, model_ids: Sequence[str]
) -> dict[str, list[LoggedMetric]]:
    """By model."""
    with db.read() as connection:
        return store.metrics_of(connection, workspace, model_ids)


def change(
    db: Database,
    clock: Clock,
    workspace: str,
    model_id: str,
    *,
    status: str | None = None,
    deleted: bool | None = None,
    tags: Tags | None = None,
    params: Mapping[str, str] | None = None,
) -> LoggedModel:
    """Change what is not None; a tag that is None is removed, the others are merged.

    Raises:
        NotFound: there is none.
        InvalidInput: a parameter is already set to another value.
    """
    with db.write() as connection:
        model = store.get(connection, workspace, model_id)
        if model is None:
            raise NotFound(f"Logged model with ID '{model_id[:100]}' not found.")
        both = {**model.tags, **((tags(model.tags) if callable(tags) else tags) or {})}
        changed = replace(
            model,
            status=status or model.status,
            deleted=model.deleted if deleted is None else deleted,
            tags={key: value for key, value in both.items() if value is not None},
            params={**model.params, **(params or {})},
            updated_at=clock.now(),
        )
        for key, value in model.params.items():
            if changed.params[key] != value:
                raise InvalidInput(
                    f"parameter `{key[:100]}` of logged model `{model_id}` is already set",
                    "log it under another key",
                )
        values = vars(changed)
        store.change(
            connection,
            workspace,
            model_id,
            **{key: values[key] for key in ("status", "deleted", "tags", "params", "updated_at")},
        )
    return changed


def record_metrics(connection: Connection, workspace: str, points: Sequence[LoggedMetric]) -> None:
    """Store metrics of models in the transaction that stores them for the run."""
    store.put_metrics(connection, workspace, points)


def record_uses(db: Database, workspace: str, run_models: Sequence[RunModel]) -> None:
    """Store which models runs used and made; storing one again does nothing."""
    with db.write() as connection:
        store.add_run_models(connection, workspace, run_models)


def of_runs(db: Database, workspace: str, runs: Sequence[str]) -> dict[str, list[RunModel]]:
    """The models that runs used or made, by run; runs without any are left out."""
    with db.read() as connection:
        return store.run_models_of(connection, workspace, runs)


def delete_of_run(connection: Connection, workspace: str, run: str) -> None:
    """Delete the models and metrics of models that a run logged.

    Their files are deleted with the run's artifacts.
    """
    store.delete_of_run(connection, workspace, run)


def folders_of(db: Database, workspace: str, run: str) -> list[str]:
    """The folders of models among the run's artifacts, relative to them."""
    with db.read() as connection:
        folders = store.folders_of(connection, workspace, run)
    return [folder.removeprefix(artifacts_of(run) + "/") for folder in folders]


def file(datastores: Datastores, model: LoggedModel, path: str) -> Path:
    """
    Raises:
        NotFound: the model has no such file.
    """
    return datastores.file(model.workspace, ARTIFACT_STORE, _stored(model, path))


def list_files(
    datastores: Datastores, model: LoggedModel, folder: str = ""
) -> Iterator[tuple[str, int]]:
    """(path below a folder of the model, size in bytes), sorted."""
    return datastores.list(model.workspace, ARTIFACT_STORE, f"{model.folder}/{folder}".rstrip("/"))


def writing(
    datastores: Datastores, model: LoggedModel, path: str
) -> AbstractContextManager[files.Writing]:
    """Open a file of the model for writing."""
    return datastores.writing(model.workspace, ARTIFACT_STORE, _stored(model, path))


def delete_file(datastores: Datastores, model: LoggedModel, path: str) -> None:
    """Delete a file, or everything below a folder; does nothing when it does not exist."""
    datastores.delete(model.workspace, ARTIFACT_STORE, _stored(model, path))


def _free_folder(
    connection: Connection, datastores: Datastores, workspace: str, run: str, name: str
) -> str:
    """The folder for the run's newest model of a name; an older model is moved out of it.

    Empty when the run has other files there.
    """
    folder = f"{artifacts_of(run)}/{name}"
    older = store.in_folder(connection, workspace, folder)
    if older is None:
        exists = files.inside(datastores.root(workspace, ARTIFACT_STORE), folder).exists()
        return "" if exists or name in _RESERVED else folder
    moved = f"{folder}-{older.id}"
    store.change(connection, workspace, older.id, folder=moved)
    datastores.move(workspace, ARTIFACT_STORE, folder, moved)
    return folder


def _stored(model: LoggedModel, path: str) -> str:
    return f"{model.folder}/{files.safe_relative(path)}"


def _check_name(name: str) -> None:
    if not name or any(character in name for character in _BAD_CHARACTERS):
        raise InvalidInput(
            f"Invalid model name ({name!r}) provided. Model name must be a non-empty string "
            f"and cannot contain the following characters: {_BAD_CHARACTERS}"
        )
    if len(name.encode()) > _NAME_MAX_BYTES or not name.isprintable():
        raise InvalidInput(
            f"Invalid model name ({name[:100]!r}…): up to {_NAME_MAX_BYTES} bytes of text"
        )
