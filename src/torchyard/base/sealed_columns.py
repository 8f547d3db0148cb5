"""Columns whose secrets are encrypted with a key of the home.

Owns: the types `SealedJson` and `SealedText`; encrypting and reading one value; which sealed values
a database holds.
Leaves: what is secret in a document to the store that declares its column, the keys to
home/secrets_keys.py.
Always: neither the database, nor its log, nor a copy of it holds a secret in clear; a copy without
the home's key has everything else. A `Database` that was opened without a home passes values
through as they are.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    Row,
    Select,
    String,
    Table,
    Text,
    cast,
    or_,
    select,
    tuple_,
    type_coerce,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

_MARK = "$sealed"
_WORKSPACE = " in workspace `{workspace}`"
_TEXT_PREFIX = "sealed:"
_NONCE_BYTES = 12
_ATTRIBUTE = "torchyard_seal"
# Documents have megabytes at the most, and mostly kilobytes.
_ROWS_AT_ONCE = 100


class Seal:
    """Encrypts with the key of one home, by AES-256-GCM, with a new nonce each time.

    Args:
        keys: gives those of 32 bytes, asked at each secret: the first one seals, all of them
            unseal.
    """

    def __init__(self, keys: Callable[[], Sequence[bytes]]) -> None:
        self._keys = keys
        self._ciphers: dict[bytes, Any] = {}

    def seal(self, plain: bytes) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        cipher = self._aes(self._keys()[0])
        return base64.b64encode(nonce + cipher.encrypt(nonce, plain, None)).decode()

    def unseal(self, text: str) -> bytes | None:
        """None of what was sealed with another key, or was changed."""
        from cryptography.exceptions import InvalidTag

        try:
            sealed = base64.b64decode(text, validate=True)
        except ValueError:
            return None
        for key in self._keys():
            try:
                plain: bytes = self._aes(key).decrypt(
                    sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None
                )
                return plain
            except (ValueError, InvalidTag):
                continue
        return None

    def _aes(self, key: bytes) -> Any:
        # Imported at the first secret: a server starts without it.
        if key not in self._ciphers:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers[key] = AESGCM(key)
        return self._ciphers[key]


def use(engine: Engine, seal: Seal | None) -> None:
    """Have the sealed columns of an engine use this seal."""
    # A column's type receives nothing else of its engine.
    setattr(engine.dialect, _ATTRIBUTE, seal)


def _seal_of(dialect: Dialect) -> Seal | None:
    seal: Seal | None = getattr(dialect, _ATTRIBUTE, None)
    return seal


class SealedJson(TypeDecorator[Any]):
    """A document, kept without its secrets beside the whole of it, encrypted.

    Args:
        without_secrets: the same document with something else in place of each secret; what is
            read where the key is not the one that it was written with.
        of: what it is to people, with names of the row's columns: "variables of job `{name}`".
    """

    impl = JSON
    cache_ok = True

    def __init__(self, without_secrets: Callable[[Any], Any], of: str) -> None:
        super().__init__()
        self.without_secrets = without_secrets
        self.of = of

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        seal = _seal_of(dialect)
        if seal is None or not isinstance(value, Mapping):
            return value
        clear = self.without_secrets(value)
        if clear == value:
            return value
        return {**clear, _MARK: seal.seal(json.dumps(value).encode())}

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        seal = _seal_of(dialect)
        if seal is None or not isinstance(value, dict) or _MARK not in value:
            return value
        clear = dict(value)
        plain = seal.unseal(clear.pop(_MARK))
        return clear if plain is None else json.loads(plain)

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        # `column["key"]`, as JSON has it.
        return JSON().coerce_compared_value(op, value)


class SealedText(TypeDecorator[str]):
    """A text that is a secret as a whole; where the key is another one, no two readings agree."""

    impl = String(255)
    cache_ok = True

    def __init__(self, of: str) -> None:
        super().__init__()
        self.of = of

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        seal = _seal_of(dialect)
        return value if seal is None or value is None else _TEXT_PREFIX + seal.seal(value.encode())

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        seal = _seal_of(dialect)
        if seal is None or value is None or not value.startswith(_TEXT_PREFIX):
            return value
        plain = seal.unseal(value[len(_TEXT_PREFIX) :])
        return secrets.token_hex(32) if plain is None else plain.decode()


def names_of_sealed(connection: Connection, tables: MetaData) -> list[str]:
    """What the sealed values of a database are of, for people, sorted."""
    names: set[str] = set()
    for table in tables.sorted_tables:
        for column in table.columns:
            if not isinstance(column.type, SealedJson | SealedText):
                continue
            of = column.type.of + (_WORKSPACE if "workspace" in table.columns else "")
            parts = [each for each in table.columns if f"{{{each.name}}}" in of]
            mark = _mark_of(column)
            query = select(*parts).where(cast(column, Text).contains(mark, autoescape=True))
            names.update(of.format(**row._mapping) for row in connection.execute(query))
    return sorted(names)


def seal_all(connection: Connection, tables: MetaData) -> None:
    """Write each sealed column again: values from before it was sealed are then encrypted.

    Some rows are in memory at a time, however many there are.
    """
    for table in tables.sorted_tables:
        columns = _sealed_columns(table)
        keys = list(table.primary_key)
        for row in _rows(connection, keys, columns) if columns else ():
            where = [key == row._mapping[key] for key in keys]
            values = {column: row._mapping[column] for column in columns}
            connection.execute(update(table).where(*where).values(values))


@dataclass(frozen=True)
class Sealed:
    """One sealed value: its row, the column, and how it is stored."""

    table: Table
    key: tuple[Any, ...]
    column: Column[Any]
    stored: Any

    @property
    def text(self) -> str:
        if isinstance(self.column.type, SealedText):
            return str(self.stored)[len(_TEXT_PREFIX) :]
        return str(self.stored[_MARK])


def sealed_values(
    connection: Connection, table: Table, after: Sequence[Any] = ()
) -> tuple[list[Sealed], Sequence[Any]]:
    """Some sealed values of a table, in the order of its keys, and where to go on.

    Args:
        after: what was returned before; empty to begin.

    Returns an empty place to go on from where there are no more.
    """
    columns = _sealed_columns(table)
    if not columns:
        return [], ()
    keys = list(table.primary_key)
    marked = [cast(column, Text).contains(_mark_of(column), autoescape=True) for column in columns]
    query = _stored_values(keys, columns).where(or_(*marked)).order_by(*keys).limit(_ROWS_AT_ONCE)
    if after:
        query = query.where(tuple_(*keys) > tuple(after))
    rows = connection.execute(query).all()
    return list(_sealed_in(table, columns, rows)), tuple(rows[-1][: len(keys)]) if rows else ()


def sealed_values_of(connection: Connection, table: Table, key: Sequence[Any]) -> list[Sealed]:
    """Those of one row, if it is still there."""
    columns, keys = _sealed_columns(table), list(table.primary_key)
    query = _stored_values(keys, columns).where(*_is_row(table, key))
    return list(_sealed_in(table, columns, connection.execute(query).all()))


def _sealed_columns(table: Table) -> list[Column[Any]]:
    return [c for c in table.columns if isinstance(c.type, SealedJson | SealedText)]


def _stored_values(keys: Sequence[Column[Any]], columns: Sequence[Column[Any]]) -> Select[Any]:
    return select(*keys, *(type_coerce(column, _stored_type(column)) for column in columns))


def _is_row(table: Table, key: Sequence[Any]) -> list[ColumnElement[bool]]:
    return [column == value for column, value in zip(table.primary_key, key, strict=True)]


def _sealed_in(
    table: Table, columns: Sequence[Column[Any]], rows: Sequence[Row[Any]]
) -> Iterator[Sealed]:
    for row in rows:
        key, stored = tuple(row[: -len(columns)]), row[-len(columns) :]
        for column, value in zip(columns, stored, strict=True):
            if _is_sealed(column, value):
                yield Sealed(table, key, column, value)


def reseal(connection: Connection, sealed: Sealed, plain: bytes, seal: Seal) -> None:
    """Store a value that is sealed again; what of it is in clear stays as it is."""
    text = seal.seal(plain)
    is_text = isinstance(sealed.column.type, SealedText)
    stored = _TEXT_PREFIX + text if is_text else {**sealed.stored, _MARK: text}
    value = type_coerce(stored, _stored_type(sealed.column))
    connection.execute(
        update(sealed.table)
        .where(*_is_row(sealed.table, sealed.key))
        .values({sealed.column: value})
    )


def _stored_type(column: Column[Any]) -> TypeEngine[Any]:
    assert isinstance(column.type, SealedJson | SealedText)
    return column.type.impl_instance


def _mark_of(column: Column[Any]) -> str:
    return f'"{_MARK}"' if isinstance(column.type, SealedJson) else _TEXT_PREFIX


def _is_sealed(column: Column[Any], value: Any) -> bool:
    if isinstance(column.type, SealedText):
        return isinstance(value, str) and value.startswith(_TEXT_PREFIX)
    return isinstance(value, dict) and _MARK in value


def _rows(
    connection: Connection, keys: Sequence[Column[Any]], columns: Sequence[Column[Any]]
) -> Iterator[Row[Any]]:
    """Every row of a table, in the order of its keys; rows may be changed in between."""
    query = select(*keys, *columns).order_by(*keys).limit(_ROWS_AT_ONCE)
    rows = connection.execute(query).all()
    while rows:
        yield from rows
        last = tuple(rows[-1]._mapping[key] for key in keys)
        rows = connection.execute(query.where(tuple_(*keys) > last)).all()
