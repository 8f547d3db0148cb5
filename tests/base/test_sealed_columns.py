"""Secrets in columns: encrypted with the home's key, and what is read without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from postgres_server import NewDatabase
from torchyard.base import sealed_columns
from torchyard.base.db import Database
from torchyard.base.home.secrets_keys import KeyRing
from torchyard.base.sealed_columns import SealedJson, SealedText

SECRET = "hunter2-hunter2"


def without_secrets(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**document, "password": "-"} if "password" in document else document


tables = sa.MetaData()
notes = sa.Table(
    "notes",
    tables,
    sa.Column("workspace", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("document", SealedJson(without_secrets, "the note `{name}`"), nullable=False),
    sa.Column("key", SealedText("the key of `{name}`"), nullable=False),
)


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    return first, second


@pytest.fixture
def url(new_empty_database: NewDatabase, tmp_path: Path, homes: tuple[Path, Path]) -> Iterator[str]:
    url = new_empty_database(tmp_path)
    db = Database(url, seal=KeyRing(homes[0]).seal())
    document = {"password": SECRET, "user": "dan", "inputs": {"a": 1}}
    with db.write() as connection:
        tables.create_all(connection)
        insertion = sa.insert(notes).values(workspace="w", key=SECRET)
        connection.execute(insertion.values(name="secret", document=document))
        connection.execute(insertion.values(name="open", document={"user": "ann"}))
    yield url
    db.close()


def read(url: str, home: Path | None, *columns: Any) -> list[Any]:
    db = Database(url, seal=KeyRing(home).seal() if home else None)
    try:
        with db.read() as connection:
            query = sa.select(*columns).order_by(notes.c.name.desc())
            return [tuple(row) for row in connection.execute(query)]
    finally:
        db.close()


def test_the_home_reads_what_it_wrote(url: str, homes: tuple[Path, Path]) -> None:
    assert read(url, homes[0], notes.c.document, notes.c.key) == [
        ({"password": SECRET, "user": "dan", "inputs": {"a": 1}}, SECRET),
        ({"user": "ann"}, SECRET),
    ]


def test_the_database_holds_no_secret(url: str) -> None:
    stored = read(url, None, sa.cast(notes.c.document, sa.Text), notes.c.key)
    assert SECRET not in repr(stored)
    assert "dan" in stored[0][0] and "$sealed" in stored[0][0] and "$sealed" not in stored[1][0]


def test_parts_of_a_document_can_be_asked_for(url: str, homes: tuple[Path, Path]) -> None:
    asked = notes.c.document[("inputs", "a")].as_string()
    assert read(url, homes[0], asked) == [("1",), (None,)]


def test_another_home_reads_all_but_the_secrets(url: str, homes: tuple[Path, Path]) -> None:
    rows = read(url, homes[1], notes.c.document, notes.c.key)
    assert rows[0][0] == {"password": "-", "user": "dan", "inputs": {"a": 1}}
    # No two readings agree, so nobody can send it.
    assert rows[0][1] != read(url, homes[1], notes.c.key)[0][0]
    assert SECRET not in repr(rows)


def test_what_is_changed_is_not_opened(homes: tuple[Path, Path]) -> None:
    seal = KeyRing(homes[0]).seal()
    sealed = seal.seal(b"secret")
    assert seal.unseal(sealed) == b"secret"
    assert seal.unseal(("A" if sealed[0] != "A" else "B") + sealed[1:]) is None
    assert seal.unseal(sealed[:8]) is None and seal.unseal("no base64") is None
    assert sealed != seal.seal(b"secret")


def test_what_is_sealed_is_told(url: str) -> None:
    db = Database(url)
    with db.read() as connection:
        names = sealed_columns.names_of_sealed(connection, tables)
    db.close()
    assert names == [
        "the key of `open` in workspace `w`",
        "the key of `secret` in workspace `w`",
        "the note `secret` in workspace `w`",
    ]


def test_rows_from_before_are_sealed(url: str, homes: tuple[Path, Path]) -> None:
    plain = Database(url)
    with plain.write() as connection:
        connection.execute(sa.update(notes).values(document={"password": SECRET}, key=SECRET))
    plain.close()
    db = Database(url, seal=KeyRing(homes[0]).seal())
    with db.write() as connection:
        sealed_columns.seal_all(connection, tables)
    db.close()
    assert SECRET not in repr(read(url, None, sa.cast(notes.c.document, sa.Text), notes.c.key))
    assert (
        read(url, homes[0], notes.c.document, notes.c.key) == [({"password": SECRET}, SECRET)] * 2
    )


def test_rows_from_before_are_read_some_at_a_time(url: str, homes: tuple[Path, Path]) -> None:
    count = 2 * sealed_columns._ROWS_AT_ONCE + 3
    plain = Database(url)
    with plain.write() as connection:
        connection.execute(sa.delete(notes))
        # Some names have two rows: no part of a key alone tells where to go on.
        rows = [
            {"workspace": f"w{number % 2}", "name": f"{number // 2:04}", "key": SECRET}
            for number in range(count)
        ]
        connection.execute(sa.insert(notes), [{**row, "document": {}} for row in rows])
    plain.close()
    db = Database(url, seal=KeyRing(homes[0]).seal())
    selects: list[str] = []
    with db.write() as connection:
        sa.event.listen(
            connection,
            "before_cursor_execute",
            lambda _c, _cursor, statement, *_: selects.append(statement),
        )
        sealed_columns.seal_all(connection, tables)
    db.close()
    selects = [statement for statement in selects if statement.startswith("SELECT")]
    assert len(selects) == 4 and all("LIMIT" in statement for statement in selects)
    assert read(url, homes[0], notes.c.key) == [(SECRET,)] * count
    assert SECRET not in repr(read(url, None, notes.c.key))
