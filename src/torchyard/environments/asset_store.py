"""The table of registered environments."""

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
from torchyard.environments.types import EnvironmentAsset

environment_assets = Table(
    "environment_assets",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("name", String(256), nullable=False),
    Column("version", String(64), nullable=False),
    Column("definition", JSON, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("owner", String(128), nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("archived", Boolean, nullable=False),
    UniqueConstraint("workspace", "name", "version"),
)

# Below this name Azure ML's clients keep the environments of jobs that name none.
ANONYMOUS = "CliV2AnonymousEnvironment"

versions = VersionTable(
    environment_assets, EnvironmentAsset, is_listed=environment_assets.c.name != ANONYMOUS
)
