"""The table of environments with names and versions."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    delete,
    insert,
)

from torchyard.base.db import Instant, metadata
from torchyard.data import version_rows
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


def add(connection: Connection, asset: EnvironmentAsset) -> None:
    connection.execute(insert(environment_assets).values(**vars(asset)))


def list_in(connection: Connection, workspace: str, name: str = "") -> list[EnvironmentAsset]:
    """Newest first."""
    wanted = version_rows.of_name(environment_assets, workspace, name)
    rows = version_rows.newest_first(connection, environment_assets, *wanted)
    return [EnvironmentAsset(**row) for row in rows]


def describe(connection: Connection, asset: EnvironmentAsset) -> None:
    version_rows.describe(connection, environment_assets, asset)


def set_archived(
    connection: Connection, workspace: str, name: str, version: str, archived: bool
) -> None:
    """One version, or all when `version` is empty."""
    version_rows.set_archived(connection, environment_assets, workspace, name, version, archived)


def forget_all(connection: Connection, workspace: str) -> None:
    """Every environment of a workspace that is going."""
    connection.execute(
        delete(environment_assets).where(environment_assets.c.workspace == workspace)
    )
