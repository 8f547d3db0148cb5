"""The blobs of a server: what each workspace has, and what environments are built from.

Owns: whose folder is where below `blobs/`, lending a workspace's snapshots to builds, what is left
of a workspace that is deleted, the one-time division of a home in which all had the same.
Leaves: files and snapshots to blobs.py, what records name to jobs/cleanup/references.py.
Always: a workspace has what was sent to it, whatever others sent; a name leads out of no folder.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchyard.base.blobs import Blobs
from torchyard.base.errors import NotFound
from torchyard.shared import locks

_WORKSPACES, _DRAFT = "workspaces", "workspaces.part"
_NAME = re.compile(r"\w[\w-]*", re.ASCII)


class BlobFolders:
    """
    Args:
        folder: `blobs/` in the home.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._workspaces = folder / _WORKSPACES

    @property
    def of_builds(self) -> Blobs:
        """The server's own: build contexts that were lent, and wheels that are kept."""
        return Blobs(self._folder)

    def of(self, workspace: str) -> Blobs:
        """
        Raises:
            NotFound: no workspace can have that name.
        """
        return Blobs(self._workspaces / _checked(workspace))

    def workspaces(self) -> list[str]:
        """Those that have a folder, also what is left of one that was deleted."""
        if not self._workspaces.is_dir():
            return []
        return sorted(name for name in os.listdir(self._workspaces) if _NAME.fullmatch(name))

    def lend(self, workspace: str, snapshot_id: str) -> None:
        """Let environments be built from a snapshot of the workspace.

        Raises:
            NotFound: the workspace does not have it.
        """
        own = self.of(workspace)
        snapshot = own.snapshot(snapshot_id)
        self.of_builds.take(own, [snapshot_id, *(file.sha256 for file in snapshot.files)])

    def forget(self, workspace: str) -> None:
        """Remove all that the workspace has; the next of that name begins with nothing."""
        shutil.rmtree(self._workspaces / _checked(workspace), ignore_errors=True)

    def divide(self, named: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Give each workspace what it names, if the home is from when all had the same blobs.

        A server that is killed meanwhile begins again.

        Args:
            named: each workspace with each snapshot that its records name.
        """
        if self._workspaces.exists():
            return
        with self._drafting() as draft:
            if draft is None:
                return
            shared = self.of_builds
            for workspace, snapshot_id in named():
                Blobs(draft / _checked(workspace)).take(shared, shared.parts(snapshot_id))
            os.rename(draft, self._workspaces)

    @contextmanager
    def _drafting(self) -> Iterator[Path | None]:
        """The folder that becomes that of the workspaces; None if another server has made it."""
        draft = self._folder / _DRAFT
        draft.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
        try:
            locks.lock(descriptor)
            if self._workspaces.exists():
                with suppress(OSError):
                    draft.rmdir()
                yield None
            else:
                yield draft
        finally:
            os.close(descriptor)


def _checked(workspace: str) -> str:
    if not _NAME.fullmatch(workspace):
        raise NotFound(f"workspace `{workspace[:80]}` does not exist")
    return workspace
