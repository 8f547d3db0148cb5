"""From a container's name to its datastore, and from a blob's name to a path.

Owns: the lookup, the valid names of blobs, the job whose files are at a path.
Leaves: opening the files to data/datastores.py and jobs/files/run_files.py.
Always: a deleted datastore is not a container any longer; the server's own files in a datastore are
neither shown nor written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchyard.azureml.blob.errors import BadRequest, NoBlob, NoContainer
from torchyard.azureml.common import containers
from torchyard.base import files
from torchyard.base.db import Database
from torchyard.base.errors import Forbidden, InvalidInput, NotFound
from torchyard.data import datastores
from torchyard.data.datastores import ARTIFACT_STORE, BLOB_STORE, Datastores, artifacts_of
from torchyard.data.types import Datastore, Files
from torchyard.workspaces import actions as workspaces

Opened = Callable[[Datastore], Files]
"""The files of a datastore that clients see."""

_MAX_NAME = 1024
_RUNS, _, _RUN_MARK = artifacts_of("").rpartition("/")
_OUTPUTS = "azureml"
_MODELS = "azureml-models"
_OWN_FOLDER = ".uploads"


@dataclass(frozen=True)
class Container:
    """A datastore, with its name for storage clients."""

    name: str
    workspace: str
    datastore: Datastore
    files: Files


class Containers:
    """Every container of the server.

    Args:
        opened: returns the files of a datastore.
    """

    def __init__(self, db: Database, stores: Datastores, opened: Opened) -> None:
        self._db = db
        self._stores = stores
        self._opened = opened
        self._locations: dict[str, tuple[str, str]] = {}

    def workspace_of(self, name: str) -> str:
        """
        Raises:
            NoContainer: no datastore has it.
        """
        return self._find(name)[0]

    def get(self, name: str) -> Container:
        """
        Raises:
            NoContainer: no datastore has it.
        """
        workspace, store = self._find(name)
        try:
            datastore = datastores.get(self._db, self._stores, workspace, store)
        except NotFound as error:
            raise self.forget(name) from error
        return Container(name, workspace, datastore, self._opened(datastore))

    def forget(self, name: str) -> NoContainer:
        """The error for a container whose datastore or workspace was deleted."""
        self._locations.pop(name, None)
        return _no_container(name)

    def _find(self, name: str) -> tuple[str, str]:
        if name not in self._locations:
            # Names are hashes: they are compared with those of all datastores.
            self._locations = {
                containers.container(workspace.name, store.name): (workspace.name, store.name)
                for workspace in workspaces.list_all(self._db)
                for store in datastores.list_in(self._db, self._stores, workspace.name)
            }
        location = self._locations.get(name)
        if location is None:
            raise _no_container(name)
        return location


def readable(name: str) -> str:
    """The path of a blob that may exist.

    Raises:
        NoBlob: no blob can have that name, so it does not exist.
    """
    try:
        return writable(name)
    except BadRequest as error:
        raise NoBlob(f"there is no blob `{name[:200]}`", error.message) from error


def writable(name: str) -> str:
    """The path of a blob that is to be written.

    Raises:
        BadRequest: a folder on a disk can't have that name, or it means another place.
    """
    if len(name) > _MAX_NAME:
        raise BadRequest(
            f"the blob's name has {len(name):,} characters",
            f"it may have at most {_MAX_NAME:,}",
            code="InvalidUri",
        )
    parts = name.split("/")
    if "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise BadRequest(
            f"`{name[:200]}` can't be a blob's name here",
            "names are paths of files: no `\\`, no `.` or `..`, no empty part, no `/` at "
            "either end",
            code="InvalidResourceName",
        )
    if any(part.startswith(".") and part.endswith(".part") for part in parts):
        raise BadRequest(
            f"`{name[:200]}` is a name for files that are being written",
            "choose another name",
            code="InvalidResourceName",
        )
    try:
        return files.safe_relative(name)
    except InvalidInput as error:
        raise BadRequest(error.message, error.hint, code="InvalidResourceName") from error


def is_visible(store: str, path: str) -> bool:
    """Whether clients may see it: parts of uploads by MLflow's clients are not blobs."""
    return store != ARTIFACT_STORE or path.partition("/")[0] != _OWN_FOLDER


def refuse_fixed(store: str, path: str) -> None:
    """
    Raises:
        Forbidden: clients may not write there.
    """
    if store == BLOB_STORE and path.partition("/")[0] == _MODELS:
        raise Forbidden(
            f"`{path[:200]}` belongs to a registered model, which never changes",
            "register a new version",
        )
    if not is_visible(store, path):
        raise Forbidden(f"`{path[:200]}` belongs to the server", "choose another name")


def job_of(store: str, path: str) -> str:
    """The job that the files at a path belong to, empty for none."""
    parts = path.split("/")
    if store == ARTIFACT_STORE and len(parts) > 2 and parts[0] == _RUNS:
        return parts[1].removeprefix(_RUN_MARK) if parts[1].startswith(_RUN_MARK) else ""
    if store == BLOB_STORE and len(parts) > 3 and parts[0] == _OUTPUTS:
        return parts[1]
    return ""


def _no_container(name: str) -> NoContainer:
    return NoContainer(
        f"there is no container `{name}`",
        "containers are datastores: see `yard datastore list`, or `ml_client.datastores.list()`",
    )
