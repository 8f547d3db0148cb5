"""What an artifact's origin, container and path mean: Azure ML's way to name a file.

Owns: the file of a datastore that they mean, and the opposite direction for lists.
Leaves: the files to their packages, links to links.py.
Always: the files of a registered version are only read; those of a run are written by people who
may change the run.

    ExperimentRun   / dcid.<run>  / outputs/model.pt     a run's
    LoggedModel     / <model id>  / artifacts/MLmodel    a logged model's
    RegisteredModel / <name>      / <version>/MLmodel    a registered version's
    RegisteredModel / <name>      / <version>:/any/MLmodel   the same, in a folder of any name
    LocalUpload     / <anything>  / model/MLmodel        of nobody yet

Source: https://learn.microsoft.com/rest/api/azureml (artifact service), REST.md sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.base.files import safe_relative
from torchyard.data.datastores import ARTIFACT_STORE, BLOB_STORE
from torchyard.data.folders import FolderFiles
from torchyard.data.types import Entry
from torchyard.jobs import actions, owners
from torchyard.jobs.files.run_files import RunFiles
from torchyard.jobs.services import FileServices, RecordServices
from torchyard.models import actions as models
from torchyard.models import logged, registry
from torchyard.workspaces.types import Identity

RUNS, LOGGED, REGISTERED = "ExperimentRun", "LoggedModel", "RegisteredModel"
RUN_MARK = "dcid."
_BELOW_LOGGED = "artifacts"


@dataclass(frozen=True)
class ContainerFolder:
    """A container's folder in a datastore; its files' paths begin with `prefix`."""

    origin: str
    container: str
    datastore: str
    folder: str
    prefix: str = ""

    def stored(self, path: str) -> str:
        """The path of a container's file in the datastore.

        Raises:
            InvalidInput: it leaves the folder by `..`.
            NotFound: the container has no such folder.
        """
        clean = "/".join(part for part in path.split("/") if part not in ("", "."))
        if self.prefix:
            if clean != self.prefix and not clean.startswith(self.prefix + "/"):
                raise NotFound(f"`{path[:200]}` is not in `{self.origin}/{self.container}`")
            clean = clean[len(self.prefix) + 1 :]
        return safe_relative(f"{self.folder}/{clean}" if clean else self.folder)


def find(
    services: RecordServices,
    workspace: str,
    origin: str,
    container: str,
    path: str = "",
    writer: Identity | None = None,
) -> ContainerFolder:
    """
    Args:
        path: of a file or a folder in the container; it may decide the place.
        writer: the person who wants to write there; None for reading.

    Raises:
        NotFound: the run, the model or the version does not exist.
        Forbidden: the run belongs to somebody else.
        InvalidInput: the files there never change, or a name contains `..`.
    """
    if origin == RUNS:
        return _of_run(services, workspace, container, writer)
    if origin == LOGGED:
        model = logged.get(services.db, workspace, container)
        if model.run:
            _of_run(services, workspace, RUN_MARK + model.run, writer)
        return ContainerFolder(origin, container, ARTIFACT_STORE, model.folder, _BELOW_LOGGED)
    if origin == REGISTERED:
        return _of_version(services.db, workspace, container, path, writer)
    return ContainerFolder(
        origin, container, ARTIFACT_STORE, safe_relative(f"{origin}/{container}")
    )


def find_all(
    services: RecordServices, workspace: str, origin: str, container: str, path: str = ""
) -> list[ContainerFolder]:
    """The places of a container's files below `path`: of a registered name, every version's.

    azureml-mlflow lists a name as a whole, and picks the version by the files' paths.

    Raises:
        NotFound: the run or the model does not exist.
    """
    if origin != REGISTERED or path.strip("/"):
        return [find(services, workspace, origin, container, path)]
    return [
        ContainerFolder(origin, container, BLOB_STORE, model.folder, str(model.version))
        for model in registry.get_with_versions(services.db, workspace, unquote(container)).versions
        if model.folder
    ]


def entries(
    services: FileServices, workspace: str, location: ContainerFolder, prefix: str = ""
) -> Iterator[Entry]:
    """The files of a container, or those in one of its folders; paths are relative to the
    container.
    """
    files: RunFiles | FolderFiles = RunFiles(services, workspace)
    if location.datastore != ARTIFACT_STORE:
        files = FolderFiles(services.datastores.root(workspace, location.datastore))
    above = prefix.strip("/")
    single = files.entry(location.stored(above)) if above else None
    if single is not None:
        yield Entry(above, single.size_bytes, single.mark)
        return
    top = above or location.prefix
    for entry in files.walk(location.stored(top)):
        yield Entry(f"{top}/{entry.path}" if top else entry.path, entry.size_bytes, entry.mark)


def _of_run(
    services: RecordServices, workspace: str, container: str, writer: Identity | None
) -> ContainerFolder:
    name = container.removeprefix(RUN_MARK)
    job = actions.get(services, workspace, name)
    if writer is not None:
        owners.refuse_foreign(writer, job, "run")
    folder = f"{RUNS}/{RUN_MARK}{job.name}"
    return ContainerFolder(RUNS, RUN_MARK + job.name, ARTIFACT_STORE, folder)


def _of_version(
    db: Database, workspace: str, container: str, path: str, writer: Identity | None
) -> ContainerFolder:
    name, (prefix, _, below) = unquote(container), path.strip("/").partition("/")
    version = prefix.removesuffix(":")
    if version != prefix:
        prefix = f"{prefix}/{below.partition('/')[0]}"
    if writer is not None:
        raise InvalidInput(f"the files of model `{name}` never change", "register another version")
    if not version:
        version = str(registry.get_with_versions(db, workspace, name).registered.last_version)
    model = models.get(db, workspace, name, version)
    if not model.folder:
        raise NotFound(
            f"the files of model `{name}:{model.version}` are not on this server",
            f"see `{model.source}`",
        )
    return ContainerFolder(
        REGISTERED, container, BLOB_STORE, model.folder, prefix or str(model.version)
    )
