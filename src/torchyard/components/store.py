"""The table of components."""

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
from torchyard.components.types import Component
from torchyard.data import version_rows

components = Table(
    "components",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("name", String(256), nullable=False),
    Column("version", String(64), nullable=False),
    Column("type", String(32), nullable=False),
    Column("definition", JSON, nullable=False),
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


def add(connection: Connection, made: Component) -> None:
    connection.execute(insert(components).values(**vars(made)))


def list_in(connection: Connection, workspace: str, name: str = "") -> list[Component]:
    """Newest first; anonymous ones only by their name."""
    wanted = version_rows.of_name(components, workspace, name)
    if not name:
        wanted.append(components.c.anonymous.is_(False))
    return [Component(**row) for row in version_rows.newest_first(connection, components, *wanted)]


def describe(connection: Connection, said: Component) -> None:
    version_rows.describe(connection, components, said)


def set_archived(
    connection: Connection, workspace: str, name: str, version: str, archived: bool
) -> None:
    """One version, or all when `version` is empty."""
    version_rows.set_archived(connection, components, workspace, name, version, archived)


def forget_all(connection: Connection, workspace: str) -> None:
    """Every component of a workspace that is going."""
    connection.execute(delete(components).where(components.c.workspace == workspace))
