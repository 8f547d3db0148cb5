"""Folders of models and uploads that no record names, and removing such a folder.

Owns: which folders torchyard made, whether they are still named, taking one away.
Leaves: deleting versions to asset_deletion.py, how old a folder must be to reclaiming.py.
Always: a folder is moved out of its datastore in the transaction that finds it unnamed, and what
begins to name one checks in its own that it is there; its files go afterwards.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from torchyard.base import files
from torchyard.data import actions as data
from torchyard.data.datastores import BLOB_STORE, MODELS, UPLOADS, Datastores
from torchyard.jobs.cleanup import references, stale_files
from torchyard.jobs.services import FileServices
from torchyard.workspaces import actions as workspaces

_ID = re.compile(r"[0-9a-f]{12}\Z|[0-9a-f]{32}\Z")


@dataclass(frozen=True)
class StoredFolder:
    """A folder of a workspace's default datastore; `folder` is its path there."""

    workspace: str
    folder: str
    path: Path

    @property
    def id(self) -> str:
        """What nothing else is called."""
        return self.path.name

    @property
    def touched_at_s(self) -> float:
        return stale_files.touched_at_s(self.path)

    def __str__(self) -> str:
        return f"{self.workspace}/{self.folder}"


def find(services: FileServices) -> list[StoredFolder]:
    """Those that no text of any record names, whatever their age."""
    # Listed before the records are read: what is stored later is not in the list.
    stored = [
        folder
        for workspace in workspaces.list_all(services.db)
        for folder in _stored(services.datastores, workspace.name)
    ]
    if not stored:
        return []
    with services.db.read() as connection:
        used_ids = references.stored_folders(connection)
    return [folder for folder in stored if folder.id not in used_ids]


def remove(services: FileServices, chosen: Collection[str], before_s: float) -> set[str]:
    """Remove those of `chosen` that are older and still unnamed; which are gone.

    Args:
        chosen: texts of folders.
    """
    if not chosen:
        return set()
    folders = [folder for folder in find(services) if str(folder) in chosen]

    def unnamed(connection: Connection) -> list[StoredFolder]:
        used_ids = references.stored_folders(connection)
        return [
            folder
            for folder in folders
            if folder.id not in used_ids and folder.touched_at_s <= before_s
        ]

    return {str(folder) for folder in take_away(services, unnamed)}


def in_default_store(datastores: Datastores, workspace: str, folder: str) -> StoredFolder:
    root = datastores.root(workspace, BLOB_STORE)
    return StoredFolder(workspace, folder, files.inside(root, folder))


def take_away(
    services: FileServices, choose: Callable[[Connection], list[StoredFolder]]
) -> list[StoredFolder]:
    """Remove the folders that `choose` finds unnamed, in the transaction that it gets."""
    moved: list[Path] = []
    with services.db.write() as connection:
        chosen = choose(connection)
        for folder in chosen:
            root = services.datastores.root(folder.workspace, BLOB_STORE)
            target = root / f"{stale_files.REMOVING}{secrets.token_hex(6)}"
            try:
                folder.path.rename(target)
            except FileNotFoundError:
                continue
            moved.append(target)
            data.delete_checksums(connection, folder.workspace, BLOB_STORE, folder.folder)
    for path in moved:
        files.remove(path)
    return chosen


def _stored(datastores: Datastores, workspace: str) -> Iterator[StoredFolder]:
    root = datastores.root(workspace, BLOB_STORE)
    tops = [root / UPLOADS, *_folders(root / MODELS)]
    for top in tops:
        for path in _folders(top):
            if _ID.match(path.name):
                yield StoredFolder(workspace, path.relative_to(root).as_posix(), path)


def _folders(top: Path) -> list[Path]:
    try:
        with os.scandir(top) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [top / name for name in sorted(names)]
