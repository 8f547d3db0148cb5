"""The datastores of a workspace.

Owns: the two that are there from the start, as folders of the server's home; those that people
made; opening any of them; where things lie, in Azure ML's own paths.
Leaves: who may read it to the rooms.
Always: a file is there whole or not at all; credentials stay here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torchyard.base import files
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec, NotFound, nearest
from torchyard.data import kinds, store
from torchyard.data.folders import FolderFiles
from torchyard.data.remote import RemoteFiles
from torchyard.data.types import Datastore, Files

ARTIFACT_STORE = "workspaceartifactstore"
BLOB_STORE = "workspaceblobstore"
BUILT_IN = (BLOB_STORE, ARTIFACT_STORE)
_ALWAYS = datetime(1970, 1, 1, tzinfo=timezone.utc)
_OWN = "make one of your own with `yard datastore create`"


def artifacts_of(job: str) -> str:
    """Where a run's artifacts lie in the artifact store."""
    return f"ExperimentRun/dcid.{job}"


def output_of(job: str, output: str) -> str:
    """Where a named output lies in the default datastore."""
    return f"azureml/{job}/{output}"


def model_folder(name: str, unique: str) -> str:
    """Where a registered model lies in the default datastore."""
    return f"azureml-models/{name}/{unique}"


def upload_folder(snapshot: str) -> str:
    """Where uploaded data lies in its datastore."""
    return f"LocalUpload/{snapshot[:32]}"


class Datastores:
    """Every workspace's own datastores, below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def root(self, workspace: str, store: str) -> Path:
        return self._folder / files.safe_relative(workspace) / store

    def touches(self, folder: Path) -> bool:
        """Whether `folder` lies in the server's home, or the home in it."""
        home, asked = self._folder.parent.resolve(), folder.resolve()
        return asked.is_relative_to(home) or home.is_relative_to(asked)

    def writing(
        self, workspace: str, store: str, path: str
    ) -> AbstractContextManager[files.Writing]:
        """Open `path` for writing; it appears when the block ends well."""
        return files.whole(files.inside(self.root(workspace, store), path))

    def file(self, workspace: str, store: str, path: str) -> Path:
        """
        Raises:
            NotFound: there is no such file.
        """
        found = files.inside(self.root(workspace, store), path)
        if not found.is_file():
            raise NotFound(f"`{path}` does not exist in datastore `{store}`", "check the path")
        return found

    def list(self, workspace: str, store: str, prefix: str) -> Iterator[tuple[str, int]]:
        """(path below `prefix`, size in bytes), sorted by path."""
        return files.walk(files.inside(self.root(workspace, store), prefix))

    def move(self, workspace: str, store: str, path: str, to: str) -> None:
        """Give a file or a folder another path, where nothing is; nothing when it is not there."""
        root = self.root(workspace, store)
        found = files.inside(root, path)
        if found.exists():
            found.rename(files.inside(root, to))

    def delete(self, workspace: str, store: str, path: str) -> None:
        """Delete a file, or everything below a folder; nothing when it is not there."""
        found = files.inside(self.root(workspace, store), path)
        if found.is_dir():
            shutil.rmtree(found)
        else:
            with suppress(NotADirectoryError):  # a file is where its folder would be
                found.unlink(missing_ok=True)


def put(
    db: Database, clock: Clock, stores: Datastores, workspace: str, document: Mapping[str, Any]
) -> Datastore:
    """Make a datastore, or change one.

    Raises:
        InvalidSpec: the document is wrong.
        Conflict: it is one of those that are always there.
        InvalidInput: the server lacks the package that its kind needs.
    """
    made = kinds.read_document(document, workspace, clock.now())
    if made.name in BUILT_IN:
        raise Conflict(f"datastore `{made.name}` is built in and can't be changed", _OWN)
    if made.url.startswith("file://") and stores.touches(Path(made.url.removeprefix("file://"))):
        raise InvalidSpec(
            f"`{document['path']}` holds what the server itself keeps",
            "name a folder that lies elsewhere",
            at=["path"],
        )
    opened(made)
    with db.write() as connection:
        store.put_datastore(connection, made)
    return made


def describe(
    db: Database,
    stores: Datastores,
    workspace: str,
    name: str,
    description: str,
    tags: Mapping[str, str],
) -> Datastore:
    """Say something else of a datastore; where it lies stays as it is.

    Raises:
        NotFound: there is none of that name.
        Conflict: it is one of those that are always there.
    """
    found = get(db, stores, workspace, name)
    if name in BUILT_IN:
        raise Conflict(f"datastore `{name}` is built in and can't be changed", _OWN)
    made = replace(found, description=description, tags=dict(tags))
    with db.write() as connection:
        store.put_datastore(connection, made)
    return made


def drop(db: Database, stores: Datastores, workspace: str, name: str) -> None:
    """Forget a datastore; its files stay where they are.

    Raises:
        NotFound: there is none of that name.
        Conflict: it is one of those that are always there.
    """
    if get(db, stores, workspace, name).name in BUILT_IN:
        raise Conflict(f"datastore `{name}` is built in and can't be deleted", "leave it there")
    with db.write() as connection:
        store.drop_datastore(connection, workspace, name)


def list_in(db: Database, stores: Datastores, workspace: str) -> list[Datastore]:
    """Those that are always there, then the others by name."""
    with db.read() as connection:
        made = store.list_datastores(connection, workspace)
    return [_built_in(stores, workspace, name) for name in BUILT_IN] + made


def get(db: Database, stores: Datastores, workspace: str, name: str) -> Datastore:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    if name in BUILT_IN:
        return _built_in(stores, workspace, name)
    known = list_in(db, stores, workspace)
    for found in known:
        if found.name == name:
            return found
    near = nearest(name, [found.name for found in known])
    hint = f"did you mean `{near}`?" if near else "list what exists with `yard datastore list`"
    raise NotFound(f"datastore `{name}` does not exist in workspace `{workspace}`", hint)


def opened(found: Datastore) -> Files:
    """Its files.

    Raises:
        InvalidInput: the server lacks the package that it needs.
    """
    protocol, _, root = found.url.partition("://")
    if protocol == "file":
        return FolderFiles(Path(root))
    made = RemoteFiles(f"datastore `{found.name}`", protocol, found.options, root)
    made.check()
    return made


def _built_in(stores: Datastores, workspace: str, name: str) -> Datastore:
    folder = stores.root(workspace, name)
    what = "named outputs, models and uploads" if name == BLOB_STORE else "what jobs leave"
    return Datastore(workspace, name, "local", f"file://{folder}", _ALWAYS, description=what)
