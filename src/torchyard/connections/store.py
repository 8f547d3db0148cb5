"""The table of connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
)

from torchyard.base.db import Instant, metadata
from torchyard.base.sealed_columns import SealedJson
from torchyard.connections.types import WorkspaceConnection

LEFT_OUT = {"torchyard.credentials": "left out of a backup"}
"""In place of the credentials that a backup left out."""
_OF = "the credentials of connection `{name}`"


def _without_credentials(credentials: Mapping[str, Any]) -> Mapping[str, Any]:
    return LEFT_OUT if credentials else credentials


connections = Table(
    "workspace_connections",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("category", String(64), nullable=False),
    Column("target", Text, nullable=False),
    Column("auth_type", String(32), nullable=False),
    Column("credentials", SealedJson(_without_credentials, _OF), nullable=False),
    Column("properties", JSON, nullable=False),
    Column("is_shared", Boolean, nullable=False),
    Column("owner", String(128), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
)


def put(connection: Connection, row: WorkspaceConnection) -> None:
    """Insert it, or replace the one of its name."""
    drop(connection, row.workspace, row.name)
    connection.execute(insert(connections).values(**vars(row)))


def drop(connection: Connection, workspace: str, name: str) -> int:
    """The number of deleted rows."""
    return connection.execute(
        delete(connections).where(connections.c.workspace == workspace, connections.c.name == name)
    ).rowcount


def list_in(connection: Connection, workspace: str) -> list[WorkspaceConnection]:
    rows = connection.execute(select(connections).where(connections.c.workspace == workspace))
    return [WorkspaceConnection(**row._mapping) for row in rows]
