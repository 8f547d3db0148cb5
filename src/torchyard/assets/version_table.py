"""The SQL of a table of names with versions.

Owns: adding, listing, describing, archiving and deleting versions; which one is the newest.
Leaves: the columns of each table to its package's store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select, update

from torchyard.assets.versions import Versioned


class Asset(Versioned, Protocol):
    """A version, and the words about it that may change."""

    @property
    def workspace(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def tags(self) -> dict[str, str]: ...
    @property
    def properties(self) -> dict[str, str]: ...


T = TypeVar("T", bound=Asset)


class VersionTable(Generic[T]):
    """One table, whose rows are the versions of one kind of asset.

    Args:
        make: makes a version from a row's columns.
        columns_of: a version's columns.
        newest_first: how rows are sorted; by the column `number`, which counts up, unless given.
        is_listed: which rows are listed when no name is given; all unless given.
    """

    def __init__(
        self,
        table: Table,
        make: Callable[..., T],
        columns_of: Callable[[T], dict[str, Any]] = vars,
        newest_first: Sequence[ColumnElement[Any]] = (),
        is_listed: ColumnElement[bool] | None = None,
    ) -> None:
        self._table = table
        self._make = make
        self._columns_of = columns_of
        self._newest_first = newest_first or [table.c.number.desc()]
        self._is_listed = is_listed
        self._columns = [column for column in table.c if column.name != "number"]

    def add(self, connection: Connection, asset: T) -> None:
        connection.execute(insert(self._table).values(**self._columns_of(asset)))

    def get(
        self, connection: Connection, workspace: str, name: str, version: str | int
    ) -> T | None:
        assets = self._select(connection, self._where(workspace, name, version))
        return assets[0] if assets else None

    def list_in(self, connection: Connection, workspace: str, name: str = "") -> list[T]:
        """The versions of a name, or of all names; newest first."""
        conditions = self._where(workspace, name)
        if not name and self._is_listed is not None:
            conditions.append(self._is_listed)
        return self._select(connection, conditions)

    def change(
        self,
        connection: Connection,
        workspace: str,
        name: str,
        version: str | int | None,
        **values: Any,
    ) -> None:
        """Set columns of one version, or of all when `version` is None."""
        connection.execute(
            update(self._table).where(*self._where(workspace, name, version)).values(values)
        )

    def describe(self, connection: Connection, asset: T) -> None:
        """Write its description, tags and properties, which is all that may change of it."""
        self.change(
            connection,
            asset.workspace,
            asset.name,
            asset.version,
            description=asset.description,
            tags=asset.tags,
            properties=asset.properties,
        )

    def delete(
        self,
        connection: Connection,
        workspace: str,
        name: str = "",
        version: str | int | None = None,
    ) -> None:
        """Delete one version, all of a name when `version` is None, or all without a name."""
        connection.execute(delete(self._table).where(*self._where(workspace, name, version)))

    def _select(self, connection: Connection, conditions: list[ColumnElement[bool]]) -> list[T]:
        query = select(*self._columns).where(*conditions).order_by(*self._newest_first)
        return [self._make(**row._mapping) for row in connection.execute(query)]

    def _where(
        self, workspace: str, name: str, version: str | int | None = None
    ) -> list[ColumnElement[bool]]:
        conditions = [self._table.c.workspace == workspace]
        if name:
            conditions.append(self._table.c.name == name)
        if version is not None:
            conditions.append(self._table.c.version == version)
        return conditions
