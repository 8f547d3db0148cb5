"""What `mlflow-artifacts:/…` names: the files of a run, of a logged model, of a version.

Owns: which of them a path means, what lies right below a folder.
Leaves: the files to the rooms.
Always: a registered version's files are read only; a run does not show its logged models' files,
for MLflow's clients put both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any, Protocol
from urllib.parse import unquote

from torchyard.base.errors import InvalidInput
from torchyard.base.files import Writing, safe_relative, whole
from torchyard.data.datastores import ARTIFACT_STORE
from torchyard.mlflow.registry import REGISTERED, Registry, name_in_path
from torchyard.mlflow.run_routes import run_of
from torchyard.mlflow.runs import Artifact, Runs
from torchyard.models import actions, logged
from torchyard.models.types import LoggedModel, Model
from torchyard.workspaces.types import Identity

_FREE = "mlflow"


class Place(Protocol):
    """Files below one folder; paths are relative to it."""

    def list(self, folder: str) -> Sequence[Artifact]:
        """Every file below a folder of the place; paths are relative to that folder."""

    def file(self, path: str) -> Path:
        """The file on the server's disk, to be read only."""

    def writing(self, path: str) -> AbstractContextManager[Writing]: ...

    def delete(self, path: str) -> None:
        """A file, or everything below a folder; nothing when it is not there."""


@dataclass(frozen=True)
class RunPlace:
    """A run's own files."""

    runs: Runs
    services: Registry
    workspace: str
    run: str

    def list(self, folder: str) -> Sequence[Artifact]:
        of_models = logged.folders_of(self.services.db, self.workspace, self.run)
        hidden = tuple(f"{of_model}/" for of_model in of_models)
        above = _above(folder)
        return [
            one
            for one in self.runs.artifacts(self.workspace, self.run, folder)
            if not (above + one.path).startswith(hidden)
        ]

    def file(self, path: str) -> Path:
        return self.runs.artifact(self.workspace, self.run, path)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        return self.runs.write_artifact(self.workspace, self.run, path)

    def delete(self, path: str) -> None:
        self.runs.delete_artifact(self.workspace, self.run, path)


@dataclass(frozen=True)
class LoggedPlace:
    """A logged model's files."""

    services: Registry
    model: LoggedModel

    def list(self, folder: str) -> Sequence[Artifact]:
        found = logged.list_files(self.services.datastores, self.model, folder)
        return [Artifact(path, size) for path, size in found]

    def file(self, path: str) -> Path:
        return logged.file(self.services.datastores, self.model, path)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        return logged.writing(self.services.datastores, self.model, path)

    def delete(self, path: str) -> None:
        logged.delete_file(self.services.datastores, self.model, path)


@dataclass(frozen=True)
class VersionPlace:
    """A registered version's files, which never change."""

    services: Registry
    model: Model

    def list(self, folder: str) -> Sequence[Artifact]:
        above = _above(folder)
        return [
            Artifact(file.path[len(above) :], file.size_bytes)
            for file in self.model.files
            if file.path.startswith(above)
        ]

    def file(self, path: str) -> Path:
        return actions.file(self.services.datastores, self.model, path)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        raise self._refusal()

    def delete(self, path: str) -> None:
        raise self._refusal()

    def _refusal(self) -> InvalidInput:
        return InvalidInput(
            f"the files of model version `{self.model.name}:{self.model.version}` never change",
            "register another version",
        )


@dataclass(frozen=True)
class FreePlace:
    """Files that belong to no run: what a client puts anywhere else below `mlflow-artifacts:/`."""

    services: Registry
    workspace: str

    def list(self, folder: str) -> Sequence[Artifact]:
        below = f"{_FREE}/{folder}".rstrip("/")
        found = self.services.datastores.list(self.workspace, ARTIFACT_STORE, below)
        return [Artifact(path, size) for path, size in found]

    def file(self, path: str) -> Path:
        return self.services.datastores.file(self.workspace, ARTIFACT_STORE, self._stored(path))

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        return self.services.datastores.writing(self.workspace, ARTIFACT_STORE, self._stored(path))

    def delete(self, path: str) -> None:
        self.services.datastores.delete(self.workspace, ARTIFACT_STORE, self._stored(path))

    def _stored(self, path: str) -> str:
        return f"{_FREE}/{safe_relative(path)}"


def find(
    runs: Runs, services: Registry, workspace: str, path: str, identity: Identity | None = None
) -> tuple[Place, str]:
    """The place that a path names, and the path in it.

    Args:
        identity: who wants to change something there; None for those who look.

    Raises:
        NotFound: the run, the model or the version does not exist.
        Forbidden: the run is another's.
    """
    parts = clean(path).split("/")
    # <experiment>/<run>/artifacts/…, <experiment>/models/<id>/artifacts/…, registered/<name>/<n>/…
    if len(parts) >= 4 and (parts[1], parts[3]) == ("models", "artifacts"):
        model = logged.get(services.db, workspace, parts[2], deleted=True)
        return LoggedPlace(services, model), "/".join(parts[4:])
    if len(parts) >= 3 and parts[0] == REGISTERED:
        version = services.version(workspace, name_in_path(parts[1]), parts[2])
        return VersionPlace(services, version), "/".join(parts[3:])
    if len(parts) < 3 or parts[2] != "artifacts":
        return FreePlace(services, workspace), "/".join(parts)
    run = run_of(runs, workspace, parts[1], identity).name
    return RunPlace(runs, services, workspace, run), "/".join(parts[3:])


def safe(path: str) -> str:
    """`path` if it climbs nowhere, however it is encoded.

    Raises:
        InvalidInput: in MLflow's words.
    """
    plain = path
    while (decoded := unquote(plain)) != plain:
        plain = decoded
    windows = PureWindowsPath(plain)
    if ".." in windows.parts or windows.is_absolute() or windows.root or "\0" in plain:
        raise InvalidInput("Invalid path")
    return path


def part_in(folder: Path, name: str) -> AbstractContextManager[Writing]:
    """Open one part of an upload for writing."""
    return whole(folder / name)


def clean(path: str) -> str:
    """Without empty parts and `.`, as `./model` has them."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def entries(place: Place, folder: str) -> list[dict[str, Any]]:
    """What lies right below a folder, folders as such, sorted."""
    files: dict[str, dict[str, Any]] = {}
    for artifact in place.list(folder):
        name, deeper, _ = artifact.path.partition("/")
        entry: dict[str, Any] = {"path": name, "is_dir": bool(deeper)}
        if not deeper:
            entry["file_size"] = artifact.size_bytes
        files[name] = entry
    return [files[name] for name in sorted(files)]


def _above(folder: str) -> str:
    return f"{folder}/" if folder else ""
