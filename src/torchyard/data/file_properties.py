"""Properties of a datastore's files: content type, metadata, the blocks they were uploaded in.

Owns: storing them, ignoring them when the file was replaced.
Leaves: the files themselves to datastores.py, names of properties to the protocols.
Always: properties count only while the file's mark is the one they were stored with.
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

# Older versions of SQLite take no more than 999 variables in one statement.
_AT_ONCE = 900


@dataclass(frozen=True)
class Block:
    """A part of a file as it was uploaded; parts follow each other."""

    id: str
    size_bytes: int


@dataclass(frozen=True)
class FileProperties:
    """`properties` are those that protocols define (content type …), `metadata` the user's own."""

    created_at: datetime
    changed_at: datetime
    properties: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


def of(db: Database, workspace: str, datastore: str, entry: Entry) -> FileProperties | None:
    return of_all(db, workspace, datastore, [entry]).get(entry.path)


def of_all(
    db: Database, workspace: str, datastore: str, entries: Sequence[Entry]
) -> dict[str, FileProperties]:
    """The properties of those files that have any, by path."""
    marks = {entry.path: entry.mark for entry in entries}
    paths = list(marks)
    rows = {}
    with db.read() as connection:
        for start in range(0, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            rows.update(property_store.find(connection, workspace, datastore, some))
    return {
        path: FileProperties(
            row["created_at"], row["changed_at"], row["properties"], row["metadata"]
        )
        for path, row in rows.items()
        if row["mark"] == marks[path]
    }


def blocks_of(db: Database, workspace: str, datastore: str, entry: Entry) -> list[Block]:
    """In the file's order; empty where it was not uploaded in blocks."""
    if of(db, workspace, datastore, entry) is None:
        return []
    with db.read() as connection:
        rows = property_store.blocks(connection, workspace, datastore, entry.path)
    return [Block(id, size_bytes) for id, size_bytes in rows]


def record_written(
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
) -> FileProperties:
    """Store the properties and the sha256 of a file that was just written.

    Args:
        created_at: when the file that it replaces was created.
    """
    now = clock.now()
    properties_of_file = FileProperties(created_at or now, now, dict(properties), dict(metadata))
    checksum = {
        "workspace": workspace,
        "datastore": datastore,
        "path": entry.path,
        "sha256": stored.sha256,
        "size_bytes": stored.size_bytes,
        "mark": entry.mark,
    }
    row = _row(workspace, datastore, entry, properties_of_file, blocks)
    with db.write() as connection:
        store.put_checksums(connection, [checksum])
        property_store.put(connection, row)
    return properties_of_file


def change(
    db: Database,
    clock: Clock,
    workspace: str,
    datastore: str,
    entry: Entry,
    *,
    properties: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> FileProperties:
    """Change the properties or metadata of a file; None leaves them as they are."""
    now = clock.now()
    existing = of(db, workspace, datastore, entry)
    blocks = blocks_of(db, workspace, datastore, entry)
    changed = existing or FileProperties(entry.modified_at or now, now)
    changed = replace(
        changed,
        changed_at=now,
        properties=dict(changed.properties if properties is None else properties),
        metadata=dict(changed.metadata if metadata is None else metadata),
    )
    row = _row(workspace, datastore, entry, changed, blocks)
    with db.write() as connection:
        property_store.put(connection, row)
    return changed


def delete(db: Database, workspace: str, datastore: str, path: str) -> None:
    """Delete the properties of a file that was deleted."""
    with db.write() as connection:
        property_store.drop(connection, workspace, datastore, path)


def _row(
    workspace: str,
    datastore: str,
    entry: Entry,
    file_properties: FileProperties,
    blocks: Sequence[Block],
) -> dict[str, Any]:
    return {
        "workspace": workspace,
        "datastore": datastore,
        "path": entry.path,
        "mark": entry.mark,
        **vars(file_properties),
        "blocks": [[block.id, block.size_bytes] for block in blocks],
    }
