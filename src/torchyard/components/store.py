"""The table of components. Anonymous ones are listed by their name alone."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from torchyard.assets.version_table import VersionTable
from torchyard.base.db import Instant, metadata
from torchyard.base.documents import secret_variables
from torchyard.components.types import Component

components = Table(
    "components",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("name", String(256), nullable=False),
    Column("version", String(64), nullable=False),
    Column("type", String(32), nullable=False),
    Column(
        "definition",
        secret_variables.sealed("component `{name}`"),
        nullable=False,
    ),
    Column("hash", String(64), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("owner", String(128), nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("anonymous", Boolean, nullable=False),
    Column("archived", Boolean, nullable=False),
    UniqueConstraint("workspace", "name", "version"),
)

versions = VersionTable(components, Component, is_listed=components.c.anonymous.is_(False))
