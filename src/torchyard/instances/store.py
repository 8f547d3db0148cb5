"""The table of compute instances."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Column,
    Integer,
    String,
    Table,
    Text,
)

from torchyard.assets.named_table import NamedTable
from torchyard.base.db import Instant, metadata
from torchyard.instances.types import Instance

instances = Table(
    "instances",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column("document", JSON, nullable=False),
    Column("state", String(32), nullable=False),
    Column("message", Text, nullable=False),
    Column("job", String(255), nullable=False),
    Column("starts", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("active_at", Instant, nullable=False),
    Column("scheduled_at", Instant, nullable=False),
)


_rows = NamedTable(instances, Instance, in_any_case=True)
add, get, list_in, change, remove = (
    _rows.add,
    _rows.get,
    _rows.list_in,
    _rows.change,
    _rows.remove,
)
