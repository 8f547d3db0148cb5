"""From a container's name to the datastore that it shows, and from a blob's name to a path.

Owns: the look-up, which names a blob can have here, whose job's files a path belongs to.
Leaves: opening the files to data/datastores.py and jobs/files/run_files.py.
Always: a datastore that is gone is no container any more; what the server keeps for itself in a
datastore is neither shown nor written.
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
"""The files of a datastore, as clients are to see them."""

_MOST_NAME = 1024
_RUNS, _, _RUN_MARK = artifacts_of("").rpartition("/")
_OUTPUTS = "azureml"
_MODELS = "azureml-models"
_OWN_FOLDER = ".uploads"


@dataclass(frozen=True)
class Container:
    """A datastore, by the name that storage clients know it by."""

    name: str
    workspace: str
    datastore: Datastore
    files: Files


class Containers:
    """Every container of the server.

    Args:
        opened: the files of a datastore.
    """

    def __init__(self, db: Database, stores: Datastores, opened: Opened) -> None:
        self._db = db
        self._stores = stores
        self._opened = opened
        self._known: dict[str, tuple[str, str]] = {}

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
            raise self.gone(name) from error
        return Container(name, workspace, datastore, self._opened(datastore))

    def gone(self, name: str) -> NoContainer:
        """What to raise when the datastore or the workspace that a container was is no more."""
        self._known.pop(name, None)
        return _none(name)

    def _find(self, name: str) -> tuple[str, str]:
        if name not in self._known:
            # Names are hashes: whose one is, is found by making those of all.
            self._known = {
                containers.container(workspace.name, store.name): (workspace.name, store.name)
                for workspace in workspaces.list_all(self._db)
                for store in datastores.list_in(self._db, self._stores, workspace.name)
            }
        location = self._known.get(name)
        if location is None:
            raise _none(name)
        return location


def readable(name: str) -> str:
    """The path of a blob that may be there.

    Raises:
        NoBlob: no blob can have that name here, so there is none.
    """
    try:
        return writable(name)
    except BadRequest as error:
        raise NoBlob(f"there is no blob `{name[:200]}`", error.message) from error


def writable(name: str) -> str:
    """The path of a blob that is to be.

    Raises:
        Refused: the name is none that a folder on a disk can hold, or means another place.
    """
    if len(name) > _MOST_NAME:
        raise BadRequest(
            f"the blob's name has {len(name):,} characters",
            f"{_MOST_NAME:,} are the most",
            code="InvalidUri",
        )
    parts = name.split("/")
    if "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise BadRequest(
            f"`{name[:200]}` can't be a blob's name here",
            "names here are paths of files: no `\\`, no `.` or `..`, no empty part, no `/` at an "
            "end",
            code="InvalidResourceName",
        )
    if any(part.startswith(".") and part.endswith(".part") for part in parts):
        raise BadRequest(
            f"`{name[:200]}` is how files are called while they are written",
            "choose another name",
            code="InvalidResourceName",
        )
    try:
        return files.safe_relative(name)
    except InvalidInput as error:
        raise BadRequest(error.message, error.hint, code="InvalidResourceName") from error


def shown(store: str, path: str) -> bool:
    """Whether clients may see it: parts of uploads by MLflow's clients are nobody's blobs."""
    return store != ARTIFACT_STORE or path.partition("/")[0] != _OWN_FOLDER


def refuse_fixed(store: str, path: str) -> None:
    """
    Raises:
        Forbidden: clients don't write there.
    """
    if store == BLOB_STORE and path.partition("/")[0] == _MODELS:
        raise Forbidden(
            f"`{path[:200]}` belongs to a registered model, and those stay as they are",
            "register a new version",
        )
    if not shown(store, path):
        raise Forbidden(f"`{path[:200]}` is the server's own", "choose another name")


def job_of(store: str, path: str) -> str:
    """The job to which the files at a path belong, empty when to none."""
    parts = path.split("/")
    if store == ARTIFACT_STORE and len(parts) > 2 and parts[0] == _RUNS:
        return parts[1].removeprefix(_RUN_MARK) if parts[1].startswith(_RUN_MARK) else ""
    if store == BLOB_STORE and len(parts) > 3 and parts[0] == _OUTPUTS:
        return parts[1]
    return ""


def _none(name: str) -> NoContainer:
    return NoContainer(
        f"there is no container `{name}`",
        "containers are datastores: see `yard datastore list`, or `ml_client.datastores.list()`",
    )
