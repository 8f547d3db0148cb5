"""The table of file properties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import JSON, Column, Connection, String, Table, Text, bindparam, delete, select

from torchyard.base.db import Instant, metadata, put_rows

file_properties = Table(
    "file_properties",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("datastore", String(256), primary_key=True),
    Column("path", String(1024), primary_key=True),
    Column("mark", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("metadata", JSON, nullable=False),
    # Up to fifty thousand of them: read only when they are needed.
    Column("blocks", JSON, nullable=False),
)
_LIGHT = [column for column in file_properties.c if column.name != "blocks"]
# Run for every request for a blob: SQLAlchemy takes longer to build it than to run it.
_FIND = select(*_LIGHT).where(
    file_properties.c.workspace == bindparam("of_workspace"),
    file_properties.c.datastore == bindparam("of_datastore"),
    file_properties.c.path.in_(bindparam("of_paths", expanding=True)),
)


def put(connection: Connection, row: dict[str, Any]) -> None:
    """Insert a row, or replace the one with its key."""
    put_rows(connection, file_properties, [row])


def drop(connection: Connection, workspace: str, datastore: str, path: str) -> None:
    connection.execute(delete(file_properties).where(*_in(workspace, datastore, path)))


def drop_below(connection: Connection, workspace: str, datastore: str, folder: str) -> None:
    path = file_properties.c.path
    connection.execute(
        delete(file_properties).where(
            *_in(workspace, datastore), (path > f"{folder}/") & (path < f"{folder}0")
        )
    )


def find(
    connection: Connection, workspace: str, datastore: str, paths: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The rows by path, without the blocks."""
    values = {"of_workspace": workspace, "of_datastore": datastore, "of_paths": paths}
    return {row.path: dict(row._mapping) for row in connection.execute(_FIND, values)}


def blocks(connection: Connection, workspace: str, datastore: str, path: str) -> list[Any]:
    query = select(file_properties.c.blocks).where(*_in(workspace, datastore, path))
    return list(connection.execute(query).scalar() or [])


def _in(workspace: str, datastore: str, path: str = "") -> list[Any]:
    columns = file_properties.c
    conditions: list[Any] = [columns.workspace == workspace, columns.datastore == datastore]
    return [*conditions, columns.path == path] if path else conditions
