"""The table of machines that people have joined to clusters."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    String,
    Table,
    delete,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.compute.types import JoinedMachine
from torchyard.workspaces import actions as workspaces

machines = Table(
    "machines",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("compute", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column("address", String(64), nullable=False),
    Column("facts", JSON, nullable=False),
    Column("draining", Boolean, nullable=False),
    Column("joined_at", Instant, nullable=False),
    Column("seen_at", Instant, nullable=False),
)


def put(connection: Connection, machine: JoinedMachine) -> None:
    """Insert or replace a machine."""
    forget(connection, machine.workspace, machine.compute, machine.name)
    connection.execute(insert(machines).values(vars(machine)))


def get(connection: Connection, workspace: str, compute: str, name: str) -> JoinedMachine | None:
    row = connection.execute(select(machines).where(*_key(workspace, compute, name))).one_or_none()
    return None if row is None else JoinedMachine(**row._mapping)


def list_in(connection: Connection, workspace: str, compute: str = "") -> list[JoinedMachine]:
    """Those of a cluster, or of all clusters of the workspace."""
    query = select(machines).where(machines.c.workspace == workspace)
    if compute:
        query = query.where(machines.c.compute == compute)
    rows = connection.execute(query.order_by(machines.c.compute, machines.c.name))
    return [JoinedMachine(**row._mapping) for row in rows]


def change(connection: Connection, workspace: str, compute: str, name: str, **values: Any) -> None:
    connection.execute(update(machines).where(*_key(workspace, compute, name)).values(values))


def forget(connection: Connection, workspace: str, compute: str, name: str) -> None:
    connection.execute(delete(machines).where(*_key(workspace, compute, name)))


def forget_all(connection: Connection, workspace: str, compute: str) -> None:
    """Those of a cluster that is deleted, and what they joined with."""
    workspaces.drop_machine_tokens(connection, workspace, compute)
    connection.execute(
        delete(machines).where(machines.c.workspace == workspace, machines.c.compute == compute)
    )


def _key(workspace: str, compute: str, name: str) -> tuple[Any, ...]:
    return (
        machines.c.workspace == workspace,
        machines.c.compute == compute,
        machines.c.name == name,
    )
