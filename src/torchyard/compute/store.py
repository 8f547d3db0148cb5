"""The tables of clusters and node slots."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    delete,
    func,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.compute.types import Compute

computes = Table(
    "computes",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("type", String(32), nullable=False),
    Column("size", String(64), nullable=False),
    Column("tier", String(16), nullable=False),
    Column("min_instances", Integer, nullable=False),
    Column("max_instances", Integer, nullable=False),
    Column("idle_time_before_scale_down", Integer, nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", JSON),
    Column("created_at", Instant, nullable=False),
)

node_slots = Table(
    "node_slots",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("compute", String(64), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("attempt_id", String(64), nullable=False, index=True),
    Column("node", Integer, nullable=False),
    UniqueConstraint("attempt_id", "node"),
)


def put(connection: Connection, compute: Compute) -> None:
    values = dict(vars(compute))
    key = (computes.c.workspace == compute.workspace) & (computes.c.name == compute.name)
    if connection.execute(select(computes.c.name).where(key)).first() is None:
        connection.execute(insert(computes).values(values))
        return
    values.pop("created_at")
    connection.execute(update(computes).where(key).values(values))


def get(connection: Connection, workspace: str, name: str) -> Compute | None:
    row = connection.execute(
        select(computes).where(computes.c.workspace == workspace, computes.c.name == name)
    ).one_or_none()
    return None if row is None else Compute(**row._mapping)


def list_in(connection: Connection, workspace: str) -> list[Compute]:
    rows = connection.execute(
        select(computes).where(computes.c.workspace == workspace).order_by(computes.c.name)
    )
    return [Compute(**row._mapping) for row in rows]


def drop(connection: Connection, workspace: str, name: str) -> None:
    connection.execute(
        delete(computes).where(computes.c.workspace == workspace, computes.c.name == name)
    )


def busy_numbers(connection: Connection, workspace: str, name: str) -> list[int]:
    """The slots held now, lowest first."""
    rows = connection.execute(
        select(node_slots.c.number)
        .where(node_slots.c.workspace == workspace, node_slots.c.compute == name)
        .order_by(node_slots.c.number)
    )
    return [row.number for row in rows]


def busy_counts(connection: Connection, workspace: str) -> dict[str, int]:
    """Slots held now, by cluster."""
    rows = connection.execute(
        select(node_slots.c.compute, func.count())
        .where(node_slots.c.workspace == workspace)
        .group_by(node_slots.c.compute)
    )
    return {name: count for name, count in rows}


def hold(
    connection: Connection, workspace: str, name: str, numbers: Sequence[int], attempt_id: str
) -> None:
    rows = [
        {
            "workspace": workspace,
            "compute": name,
            "number": number,
            "attempt_id": attempt_id,
            "node": node,
        }
        for node, number in enumerate(numbers)
    ]
    connection.execute(insert(node_slots), rows)


def slots_of(connection: Connection, attempt_id: str) -> list[int]:
    """By node."""
    rows = connection.execute(
        select(node_slots.c.number)
        .where(node_slots.c.attempt_id == attempt_id)
        .order_by(node_slots.c.node)
    )
    return [row.number for row in rows]


def release(connection: Connection, attempt_id: str) -> None:
    connection.execute(delete(node_slots).where(node_slots.c.attempt_id == attempt_id))
