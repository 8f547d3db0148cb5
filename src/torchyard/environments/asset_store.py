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
    select,
    update,
)

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


def add(connection: Connection, asset: EnvironmentAsset) -> None:
    connection.execute(insert(environment_assets).values(**vars(asset)))


def list_in(connection: Connection, workspace: str, name: str = "") -> list[EnvironmentAsset]:
    """Newest first."""
    table = environment_assets
    wanted = [table.c.workspace == workspace]
    if name:
        wanted.append(table.c.name == name)
    columns = [column for column in table.c if column.name != "number"]
    rows = connection.execute(select(*columns).where(*wanted).order_by(table.c.number.desc()))
    return [EnvironmentAsset(**row._mapping) for row in rows]


def describe(connection: Connection, asset: EnvironmentAsset) -> None:
    """Keep what may change of a version: what is said of it."""
    table = environment_assets
    connection.execute(
        update(table)
        .where(
            table.c.workspace == asset.workspace,
            table.c.name == asset.name,
            table.c.version == asset.version,
        )
        .values(
            description=asset.description,
            tags=asset.tags,
            properties=asset.properties,
        )
    )


def set_archived(
    connection: Connection, workspace: str, name: str, version: str, archived: bool
) -> None:
    """One version, or all when `version` is empty."""
    table = environment_assets
    wanted = [table.c.workspace == workspace, table.c.name == name]
    if version:
        wanted.append(table.c.version == version)
    connection.execute(update(table).where(*wanted).values(archived=archived))


def forget_all(connection: Connection, workspace: str) -> None:
    """Every environment of a workspace that is going."""
    connection.execute(
        delete(environment_assets).where(environment_assets.c.workspace == workspace)
    )
