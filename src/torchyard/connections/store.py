"""The table of connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    String,
    Table,
    Text,
)

from torchyard.assets.named_table import NamedTable
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


_rows = NamedTable(connections, WorkspaceConnection)
put, drop, list_in = _rows.put, _rows.drop, _rows.list_in
