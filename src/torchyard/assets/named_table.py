"""The SQL of a table whose rows have a key, such as a workspace and a name.

Owns: adding, replacing, finding, listing, changing and removing rows.
Leaves: the columns of each table, and further questions, to its package's store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, delete, func, insert, select, update

T = TypeVar("T")


class NamedTable(Generic[T]):
    """
    Args:
        make: makes a thing from a row's columns.
        columns_of: the columns of a thing's values, or of a part of them.
        in_any_case: names are found in any case, as Azure's clients compare them.
    """

    def __init__(
        self,
        table: Table,
        make: Callable[..., T],
        columns_of: Callable[[Any], dict[str, Any]] = dict,
        in_any_case: bool = False,
    ) -> None:
        self._table = table
        self._make = make
        self._columns_of = columns_of
        self._key = tuple(table.primary_key.columns)
        self._in_any_case = in_any_case

    def add(self, connection: Connection, thing: T) -> None:
        connection.execute(insert(self._table).values(self._columns_of(vars(thing))))

    def put(self, connection: Connection, thing: T) -> None:
        """Add it, or replace the one of its key."""
        self.remove(connection, thing)
        self.add(connection, thing)

    def get(self, connection: Connection, *key: Any) -> T | None:
        where = [column == value for column, value in zip(self._key, key, strict=True)]
        if self._in_any_case:
            where[-1] = func.lower(self._key[-1]) == key[-1].lower()
        row = connection.execute(select(self._table).where(*where)).first()
        return None if row is None else self._make(**row._mapping)

    def list_in(self, connection: Connection, *key: Any) -> list[T]:
        """All whose key begins so, in the order of their keys; an empty part is any."""
        where = [
            column == value for column, value in zip(self._key, key, strict=False) if value != ""
        ]
        rows = connection.execute(select(self._table).where(*where).order_by(*self._key))
        return [self._make(**row._mapping) for row in rows]

    def change(
        self, connection: Connection, thing: T, *only_if: ColumnElement[bool], **values: Any
    ) -> bool:
        """Whether there was one to change.

        Args:
            only_if: what must hold of the row, too.
        """
        query = update(self._table).where(*self.of(thing), *only_if)
        return connection.execute(query.values(self._columns_of(values))).rowcount > 0

    def remove(self, connection: Connection, thing: T) -> None:
        connection.execute(delete(self._table).where(*self.of(thing)))

    def drop(self, connection: Connection, *key: Any) -> int:
        """How many had a key that begins so."""
        where = [column == value for column, value in zip(self._key, key, strict=False)]
        return connection.execute(delete(self._table).where(*where)).rowcount

    def of(self, thing: T) -> list[ColumnElement[bool]]:
        """The condition of its row."""
        return [column == getattr(thing, column.name) for column in self._key]
