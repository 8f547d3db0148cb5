"""The table of compute instances."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Integer,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

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


def add(connection: Connection, instance: Instance) -> None:
    connection.execute(insert(instances).values(vars(instance)))


def get(connection: Connection, workspace: str, name: str) -> Instance | None:
    """In any case, as names of compute are compared."""
    for instance in list_in(connection, workspace):
        if instance.name.lower() == name.lower():
            return instance
    return None


def list_in(connection: Connection, workspace: str) -> list[Instance]:
    """Those of a workspace, or of all when it is empty."""
    query = select(instances).order_by(instances.c.workspace, instances.c.name)
    if workspace:
        query = query.where(instances.c.workspace == workspace)
    return [Instance(**row._mapping) for row in connection.execute(query)]


def change(connection: Connection, instance: Instance, **values: Any) -> None:
    connection.execute(update(instances).where(*_key(instance)).values(values))


def remove(connection: Connection, instance: Instance) -> None:
    connection.execute(delete(instances).where(*_key(instance)))


def _key(instance: Instance) -> tuple[Any, ...]:
    return instances.c.workspace == instance.workspace, instances.c.name == instance.name
