"""What files of a datastore are said to be: their type, their metadata, the blocks they came in.

Owns: keeping it, and forgetting it when the file is another.
Leaves: the files themselves to datastores.py; the words to whoever says them.
Always: what was said of a file counts only while the file's mark is what it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.files import Stored
from torchyard.data import property_store, store
from torchyard.data.types import Entry

# SQLite takes so many variables in one statement, and older ones no more.
_AT_ONCE = 900


@dataclass(frozen=True)
class Block:
    """A part of a file as it was sent; parts follow each other."""

    id: str
    size_bytes: int


@dataclass(frozen=True)
class Said:
    """Of one file. `properties` are what protocols know by names of their own (content type …),
    `metadata` what people say of it.
    """

    created_at: datetime
    changed_at: datetime
    properties: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


def of(db: Database, workspace: str, datastore: str, entry: Entry) -> Said | None:
    return of_all(db, workspace, datastore, [entry]).get(entry.path)


def of_all(
    db: Database, workspace: str, datastore: str, entries: Sequence[Entry]
) -> dict[str, Said]:
    """By path, of those of which anything is known."""
    marks = {entry.path: entry.mark for entry in entries}
    paths = list(marks)
    found = {}
    with db.read() as connection:
        for start in range(0, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            found.update(property_store.find(connection, workspace, datastore, some))
    return {
        path: Said(row["created_at"], row["changed_at"], row["properties"], row["metadata"])
        for path, row in found.items()
        if row["mark"] == marks[path]
    }


def blocks_of(db: Database, workspace: str, datastore: str, entry: Entry) -> list[Block]:
    """In the file's order; none where it did not come in blocks."""
    if of(db, workspace, datastore, entry) is None:
        return []
    with db.read() as connection:
        found = property_store.blocks(connection, workspace, datastore, entry.path)
    return [Block(id, size_bytes) for id, size_bytes in found]


def wrote(
    db: Database,
    clock: Clock,
    workspace: str,
    datastore: str,
    entry: Entry,
    stored: Stored,
    properties: Mapping[str, str],
    metadata: Mapping[str, str],
    blocks: Sequence[Block] = (),
    created_at: datetime | None = None,
) -> Said:
    """Keep what is said of a file that was just written, and its sha256.

    Args:
        created_at: of the file that it replaces, if it does.
    """
    now = clock.now()
    said = Said(created_at or now, now, dict(properties), dict(metadata))
    checksum = {
        "workspace": workspace,
        "datastore": datastore,
        "path": entry.path,
        "sha256": stored.sha256,
        "size_bytes": stored.size_bytes,
        "mark": entry.mark,
    }
    row = _row(workspace, datastore, entry, said, blocks)
    with db.write() as connection:
        store.put_checksums(connection, [checksum])
        property_store.put(connection, row)
    return said


def change(
    db: Database,
    clock: Clock,
    workspace: str,
    datastore: str,
    entry: Entry,
    *,
    properties: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Said:
    """Say something else of a file that stays as it is; None leaves what was said."""
    now = clock.now()
    known = of(db, workspace, datastore, entry)
    blocks = blocks_of(db, workspace, datastore, entry)
    said = known or Said(entry.modified_at or now, now)
    said = replace(
        said,
        changed_at=now,
        properties=dict(said.properties if properties is None else properties),
        metadata=dict(said.metadata if metadata is None else metadata),
    )
    row = _row(workspace, datastore, entry, said, blocks)
    with db.write() as connection:
        property_store.put(connection, row)
    return said


def forget(db: Database, workspace: str, datastore: str, path: str) -> None:
    """Of a file that is gone."""
    with db.write() as connection:
        property_store.drop(connection, workspace, datastore, path)


def _row(
    workspace: str, datastore: str, entry: Entry, said: Said, blocks: Sequence[Block]
) -> dict[str, Any]:
    return {
        "workspace": workspace,
        "datastore": datastore,
        "path": entry.path,
        "mark": entry.mark,
        **vars(said),
        "blocks": [[block.id, block.size_bytes] for block in blocks],
    }
