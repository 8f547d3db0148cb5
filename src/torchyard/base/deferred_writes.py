"""Writes of one transaction that wait until something could tell that they are not done yet.

Owns: collecting changes of rows, writing those of one kind by one statement.
Leaves: transactions to db.py, which rows change to each package's `store`.
Always: a transaction reads what it has written: whatever waits is written before its next
statement, and before the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Delete, Engine, Insert, Table, Update, bindparam, event, update

_WAITING = "torchyard.deferred_writes"
Statement = Insert | Delete
Row = Mapping[str, Any]
Change = tuple[Mapping[str, Any], dict[str, Any]]


class _Writes:
    """What waits in one transaction: statements first, then the changes of rows."""

    def __init__(self) -> None:
        self.statements: dict[Any, tuple[Statement, list[Row]]] = {}
        # By table, then by the values of the key.
        self.changes: dict[Table, dict[tuple[Any, ...], Change]] = {}

    def must_go_before(self, statement: Statement) -> bool:
        """Whether another kind of write to the same table waits: their order counts."""
        table: Any = statement.table
        if table in self.changes:
            return True
        there = self.statements.get(table)
        return there is not None and there[0] is not statement


@contextmanager
def collected(connection: Connection) -> Iterator[None]:
    """Let writes of this transaction wait; at the end they are written."""
    # A connection that was lost meanwhile does not give it any more.
    info = connection.info
    info[_WAITING] = _Writes()
    try:
        yield
        flush(connection)
    finally:
        info.pop(_WAITING, None)


def listen(engine: Engine) -> None:
    """Have `flush` called before every statement on the engine's connections."""

    @event.listens_for(engine, "before_execute")
    def _before(connection: Connection, *_: Any) -> None:
        if connection.info.get(_WAITING) is not None:
            flush(connection)


def flush(connection: Connection) -> None:
    """Write what waits."""
    info = connection.info
    writes: _Writes | None = info.get(_WAITING)
    if writes is None or not (writes.statements or writes.changes):
        return
    # Nothing waits while this executes statements itself.
    info[_WAITING] = None
    try:
        for statement, rows in writes.statements.values():
            connection.execute(statement, rows)
        for table, changes in writes.changes.items():
            _change(connection, table, list(changes.values()))
    finally:
        info[_WAITING] = _Writes()


def defer(connection: Connection, statement: Statement, rows: Sequence[Row]) -> None:
    """Execute a statement for each of the rows, with other writes of this transaction.

    Args:
        statement: one that is built once, for all of its calls.
    """
    if not rows:
        return
    writes: _Writes | None = connection.info.get(_WAITING)
    if writes is None:
        connection.execute(statement, rows)
        return
    if writes.must_go_before(statement):
        flush(connection)
        writes = connection.info[_WAITING]
        assert writes is not None
    writes.statements.setdefault(statement.table, (statement, []))[1].extend(rows)


def change_row(
    connection: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    """Set columns of the rows that `key` names, with other writes of this transaction.

    Several changes of one row become one, the later value of a column counts. The statement is
    built once for each choice of columns: SQLAlchemy takes longer to build it than to run it.
    """
    if not values:
        return
    writes: _Writes | None = connection.info.get(_WAITING)
    if writes is None:
        _change(connection, table, [(key, dict(values))])
        return
    changes = writes.changes.setdefault(table, {})
    place = (*key, *key.values())
    changes.setdefault(place, (key, {}))[1].update(values)


def _change(connection: Connection, table: Table, changes: Sequence[Change]) -> None:
    """In the order of their keys, so that two writers of the same rows never wait in a ring."""
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Row]] = {}
    for key, values in changes:
        names = tuple(sorted(values))
        row = {f"key_{name}": value for name, value in key.items()}
        row |= {f"new_{name}": values[name] for name in names}
        alike.setdefault((tuple(key), names), []).append(row)
    for (key_names, names), rows in alike.items():
        rows.sort(key=lambda row: tuple(row[f"key_{name}"] for name in key_names))
        statement = _update_of(table, key_names, names)
        connection.execute(statement, rows if len(rows) > 1 else rows[0])


@lru_cache(maxsize=256)
def _update_of(table: Table, key: tuple[str, ...], names: tuple[str, ...]) -> Update:
    where = [table.c[name] == bindparam(f"key_{name}") for name in key]
    return update(table).where(*where).values({name: bindparam(f"new_{name}") for name in names})
