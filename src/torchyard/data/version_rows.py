"""What every table of names with versions has in common.

Owns: the SQL of listing, describing and archiving; the newest row first.
Leaves: each table's columns and its noun to its own store.
"""

from __future__ import annotations

from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Table, select, update


class Said(Protocol):
    """A version, and what is said of it."""

    @property
    def workspace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def tags(self) -> dict[str, str]: ...
    @property
    def properties(self) -> dict[str, str]: ...


def newest_first(
    connection: Connection, table: Table, *wanted: ColumnElement[bool]
) -> list[dict[str, Any]]:
    """The rows without their number."""
    columns = [column for column in table.c if column.name != "number"]
    query = select(*columns).where(*wanted).order_by(table.c.number.desc())
    return [dict(row._mapping) for row in connection.execute(query)]


def of_name(table: Table, workspace: str, name: str = "") -> list[ColumnElement[bool]]:
    """Those of one name, or of all."""
    wanted = [table.c.workspace == workspace]
    return [*wanted, table.c.name == name] if name else wanted


def describe(connection: Connection, table: Table, said: Said) -> None:
    """Keep what may change of a version: what is said of it."""
    connection.execute(
        update(table)
        .where(*of_name(table, said.workspace, said.name), table.c.version == said.version)
        .values(description=said.description, tags=said.tags, properties=said.properties)
    )


def set_archived(
    connection: Connection, table: Table, workspace: str, name: str, version: str, archived: bool
) -> None:
    """One version, or all when `version` is empty."""
    wanted = of_name(table, workspace, name)
    if version:
        wanted.append(table.c.version == version)
    connection.execute(update(table).where(*wanted).values(archived=archived))
