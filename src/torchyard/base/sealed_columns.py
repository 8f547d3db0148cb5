"""Columns whose secrets are encrypted with a key of the home.

Owns: the types `SealedJson` and `SealedText`; encrypting and reading one value; which sealed values
a database holds.
Leaves: what is secret in a document to the store that declares its column, the key's file to
home/signing.py.
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
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Engine,
    MetaData,
    Row,
    String,
    Text,
    cast,
    select,
    tuple_,
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
        key: gives its 32 bytes, asked at the first secret.
    """

    def __init__(self, key: Callable[[], bytes]) -> None:
        self._key = key
        self._cipher: Any = None

    def seal(self, plain: bytes) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        return base64.b64encode(nonce + self._aes().encrypt(nonce, plain, None)).decode()

    def unseal(self, text: str) -> bytes | None:
        """None of what was sealed with another key, or was changed."""
        from cryptography.exceptions import InvalidTag

        try:
            sealed = base64.b64decode(text, validate=True)
            plain: bytes = self._aes().decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
        except (ValueError, InvalidTag):
            return None
        return plain

    def _aes(self) -> Any:
        # Imported at the first secret: a server starts without it.
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(self._key())
        return self._cipher


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
            mark = f'"{_MARK}"' if isinstance(column.type, SealedJson) else _TEXT_PREFIX
            query = select(*parts).where(cast(column, Text).contains(mark, autoescape=True))
            names.update(of.format(**row._mapping) for row in connection.execute(query))
    return sorted(names)


def seal_all(connection: Connection, tables: MetaData) -> None:
    """Write each sealed column again: values from before it was sealed are then encrypted.

    Some rows are in memory at a time, however many there are.
    """
    for table in tables.sorted_tables:
        columns = [c for c in table.columns if isinstance(c.type, SealedJson | SealedText)]
        keys = list(table.primary_key)
        for row in _rows(connection, keys, columns) if columns else ():
            where = [key == row._mapping[key] for key in keys]
            values = {column: row._mapping[column] for column in columns}
            connection.execute(update(table).where(*where).values(values))


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
