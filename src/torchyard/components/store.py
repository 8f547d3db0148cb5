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
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.components.types import Component

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
    wanted = [components.c.workspace == workspace]
    wanted.append(components.c.name == name if name else components.c.anonymous.is_(False))
    columns = [column for column in components.c if column.name != "number"]
    rows = connection.execute(select(*columns).where(*wanted).order_by(components.c.number.desc()))
    return [Component(**row._mapping) for row in rows]


def describe(connection: Connection, said: Component) -> None:
    """Keep what may change of a version: what is said of it."""
    connection.execute(
        update(components)
        .where(
            components.c.workspace == said.workspace,
            components.c.name == said.name,
            components.c.version == said.version,
        )
        .values(description=said.description, tags=said.tags, properties=said.properties)
    )


def set_archived(
    connection: Connection, workspace: str, name: str, version: str, archived: bool
) -> None:
    """One version, or all when `version` is empty."""
    wanted = [components.c.workspace == workspace, components.c.name == name]
    if version:
        wanted.append(components.c.version == version)
    connection.execute(update(components).where(*wanted).values(archived=archived))


def forget_all(connection: Connection, workspace: str) -> None:
    """Every component of a workspace that is going."""
    connection.execute(delete(components).where(components.c.workspace == workspace))
