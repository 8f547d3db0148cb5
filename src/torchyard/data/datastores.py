"""The datastores of a workspace, as folders of the server's home.

Owns: where an artifact or a named output lies, in Azure ML's own paths.
Leaves: who may read it to the rooms.
Always: a file is there whole or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from torchyard.base import files
from torchyard.base.errors import NotFound

ARTIFACT_STORE = "workspaceartifactstore"
BLOB_STORE = "workspaceblobstore"


def artifacts_of(job: str) -> str:
    """Where a run's artifacts lie in the artifact store."""
    return f"ExperimentRun/dcid.{job}"


def output_of(job: str, output: str) -> str:
    """Where a named output lies in the default datastore."""
    return f"azureml/{job}/{output}"


def model_folder(name: str, unique: str) -> str:
    """Where a registered model lies in the default datastore."""
    return f"azureml-models/{name}/{unique}"


class Datastores:
    """Every workspace's datastores below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def root(self, workspace: str, store: str) -> Path:
        return self._folder / files.safe_relative(workspace) / store

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
            raise NotFound(f"`{path}` does not exist in datastore `{store}`")
        return found

    def list(self, workspace: str, store: str, prefix: str) -> Iterator[tuple[str, int]]:
        """(path below `prefix`, size in bytes), sorted by path."""
        return files.walk(files.inside(self.root(workspace, store), prefix))

    def delete(self, workspace: str, store: str, path: str) -> None:
        """Delete a file, or everything below a folder; nothing when it is not there."""
        found = files.inside(self.root(workspace, store), path)
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)
