"""What `mlflow-artifacts:/…` names: the files of a run, a logged model or a model version.

Owns: which of them a path names, what a folder directly contains.
Leaves: the files themselves to jobs/, models/ and data/.
Always: the files of a registered version are read-only; a run's listing leaves out the files of
its logged models, because MLflow's clients merge the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any, Protocol
from urllib.parse import unquote

from torchyard.base.errors import InvalidInput
from torchyard.base.files import Writing, safe_relative, write_atomically
from torchyard.data.datastores import ARTIFACT_STORE
from torchyard.jobs.files import artifacts
from torchyard.jobs.files.artifacts import Artifact
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices
from torchyard.mlflow.lookups import get_run
from torchyard.mlflow.model_json import REGISTERED_FOLDER, get_version, name_in_path
from torchyard.models import actions, logged
from torchyard.models.types import LoggedModel, Model
from torchyard.workspaces.types import Identity

_OTHER_FOLDER = "mlflow"


class ArtifactRepository(Protocol):
    """Files below one folder; paths are relative to it."""

    def list(self, folder: str) -> Sequence[Artifact]:
        """Every file below a folder of the repository; paths are relative to that folder."""

    def file(self, path: str) -> Path:
        """The file on the server's disk, for reading only."""

    def writing(self, path: str) -> AbstractContextManager[Writing]: ...

    def delete(self, path: str) -> None:
        """Delete a file, or everything below a folder, if it exists."""


@dataclass(frozen=True)
class RunArtifacts:
    """A run's own files."""

    services: FileServices
    job: Job

    def list(self, folder: str) -> Sequence[Artifact]:
        model_folders = logged.folders_of(self.services.db, self.job.workspace, self.job.name)
        prefixes = tuple(f"{model_folder}/" for model_folder in model_folders)
        above = _prefix(folder)
        return [
            artifact
            for artifact in artifacts.list_of(self.services, self.job, folder)
            if not (above + artifact.path).startswith(prefixes)
        ]

    def file(self, path: str) -> Path:
        return artifacts.file(self.services, self.job, path)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        return artifacts.writing(self.services.datastores, self.job, path)

    def delete(self, path: str) -> None:
        artifacts.delete(self.services.datastores, self.job, path)


@dataclass(frozen=True)
class LoggedModelArtifacts:
    """A logged model's files."""

    services: FileServices
    model: LoggedModel

    def list(self, folder: str) -> Sequence[Artifact]:
        files = logged.list_files(self.services.datastores, self.model, folder)
        return [Artifact(path, size) for path, size in files]

    def file(self, path: str) -> Path:
        return logged.file(self.services.datastores, self.model, path)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        return logged.writing(self.services.datastores, self.model, path)

    def delete(self, path: str) -> None:
        logged.delete_file(self.services.datastores, self.model, path)


@dataclass(frozen=True)
class VersionArtifacts:
    """A registered version's files, which never change."""

    services: FileServices
    model: Model

    def list(self, folder: str) -> Sequence[Artifact]:
        above = _prefix(folder)
        return [
            Artifact(file.path[len(above) :], file.size_bytes)
            for file in self.model.files
            if file.path.startswith(above)
        ]

    def file(self, path: str) -> Path:
        return actions.file(self.services.datastores, self.model, path)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        raise self._read_only()

    def delete(self, path: str) -> None:
        raise self._read_only()

    def _read_only(self) -> InvalidInput:
        return InvalidInput(
            f"the files of model version `{self.model.name}:{self.model.version}` never change",
            "register another version",
        )


@dataclass(frozen=True)
class OtherArtifacts:
    """Files that a client puts anywhere else below `mlflow-artifacts:/`; they belong to no run."""

    services: FileServices
    workspace: str

    def list(self, folder: str) -> Sequence[Artifact]:
        stored = f"{_OTHER_FOLDER}/{folder}".rstrip("/")
        files = self.services.datastores.list(self.workspace, ARTIFACT_STORE, stored)
        return [Artifact(path, size) for path, size in files]

    def file(self, path: str) -> Path:
        return self.services.datastores.file(self.workspace, ARTIFACT_STORE, _stored(path))

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        return self.services.datastores.writing(self.workspace, ARTIFACT_STORE, _stored(path))

    def delete(self, path: str) -> None:
        self.services.datastores.delete(self.workspace, ARTIFACT_STORE, _stored(path))


def find_repository(
    services: FileServices, workspace: str, path: str, identity: Identity | None = None
) -> tuple[ArtifactRepository, str]:
    """The repository that a path names, and the path inside it.

    Args:
        identity: who wants to change a file; None to read it.

    Raises:
        NotFound: the run, the model or the version does not exist.
        Forbidden: the run is another's.
    """
    parts = normalize(path).split("/")
    # <experiment>/<run>/artifacts/…, <experiment>/models/<id>/artifacts/…, registered/<name>/<n>/…
    if len(parts) >= 4 and (parts[1], parts[3]) == ("models", "artifacts"):
        model = logged.get(services.db, workspace, parts[2], deleted=True)
        return LoggedModelArtifacts(services, model), "/".join(parts[4:])
    if len(parts) >= 3 and parts[0] == REGISTERED_FOLDER:
        version = get_version(services.db, workspace, name_in_path(parts[1]), parts[2])
        return VersionArtifacts(services, version), "/".join(parts[3:])
    if len(parts) < 3 or parts[2] != "artifacts":
        return OtherArtifacts(services, workspace), "/".join(parts)
    job = get_run(services, workspace, parts[1], identity)
    return RunArtifacts(services, job), "/".join(parts[3:])


def checked_path(path: str) -> str:
    """`path`, if it does not leave its folder, however it is encoded.

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


def open_part(folder: Path, name: str) -> AbstractContextManager[Writing]:
    """Open one part of an upload for writing."""
    return write_atomically(folder / name)


def normalize(path: str) -> str:
    """The path without empty parts and `.`, which `./model` has."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def list_folder(repository: ArtifactRepository, folder: str) -> list[dict[str, Any]]:
    """The files and folders directly in a folder, sorted."""
    entries: dict[str, dict[str, Any]] = {}
    for artifact in repository.list(folder):
        name, below, _ = artifact.path.partition("/")
        entry: dict[str, Any] = {"path": name, "is_dir": bool(below)}
        if not below:
            entry["file_size"] = artifact.size_bytes
        entries[name] = entry
    return [entries[name] for name in sorted(entries)]


def list_folder_from_root(repository: ArtifactRepository, folder: str) -> list[dict[str, Any]]:
    """As `list_folder`, with paths relative to the repository."""
    above = _prefix(folder)
    return [{**entry, "path": above + entry["path"]} for entry in list_folder(repository, folder)]


def _stored(path: str) -> str:
    return f"{_OTHER_FOLDER}/{safe_relative(path)}"


def _prefix(folder: str) -> str:
    return f"{folder}/" if folder else ""
