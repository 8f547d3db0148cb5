"""The versions of assets that were deleted.

Owns: the table of their numbers, the error for one that is used again.
Leaves: deleting to each package; models number their versions in their own table.
Always: a reference in an old job never comes to mean another content.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, String, Table, delete, select

from torchyard.base.db import insert_new, metadata
from torchyard.base.errors import Conflict

deleted_versions = Table(
    "deleted_versions",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("version", String(64), primary_key=True),
)


def add(connection: Connection, workspace: str, kind: str, name: str, version: str) -> None:
    row = {"workspace": workspace, "kind": kind, "name": name, "version": version}
    insert_new(connection, deleted_versions, [row])


def of_name(connection: Connection, workspace: str, kind: str, name: str) -> set[str]:
    table = deleted_versions.c
    query = select(table.version).where(
        table.workspace == workspace, table.kind == kind, table.name == name
    )
    return set(connection.execute(query).scalars())


def delete_all(connection: Connection, workspace: str) -> None:
    """Forget those of a workspace that is being deleted."""
    connection.execute(delete(deleted_versions).where(deleted_versions.c.workspace == workspace))


def used_again(kind: str, name: str, version: str) -> Conflict:
    """The error for a new version that has the number of a deleted one."""
    return Conflict(
        f"{kind} `{name}:{version}` was deleted, and its version can't be used again",
        "leave `version` out to get the next one",
        code="version_deleted",
        at=["version"],
    )
