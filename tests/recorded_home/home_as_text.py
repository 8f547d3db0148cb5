"""A home folder and its records as text, and back into a folder and either database.

Owns: what of a home is recorded, how a row and a file are written down.
Leaves: making the home to record.py, comparing to the tests.
Always: rows are read and written below torchyard's own code, with the schema of the version that
made them, so that a mistake in that code can't hide itself.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

Row = dict[str, Any]
_DATABASE = "torchyard.db"
# What a server makes again, and what belongs to processes that have ended.
_LEFT_OUT = ("cache", "environments", "locks", "router", "scratch", "workers")
_LEFT_OUT_FILES = (_DATABASE, f"{_DATABASE}-wal", f"{_DATABASE}-shm", "server.json", "server.log")
_LONGEST_LINE = 99_000


def save(home: Path, postgres_url: str, folder: Path) -> None:
    """Write a home with a SQLite database down, whose server has ended.

    Args:
        postgres_url: a database with the same schema, without rows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(home / _DATABASE) as connection:
        made = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC, name"
        )
        statements = [f"{' '.join(sql.split())};\n" for (sql,) in made]
        (folder / "schema.sqlite.sql").write_text("".join(statements))
        _write_lines(folder / "rows.jsonl", _rows_in(connection))
    dump = ["pg_dump", "--schema-only", "--no-owner", "--no-comments", postgres_url]
    text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    kept = [line for line in text.splitlines() if line and not line.startswith(("--", "\\"))]
    (folder / "schema.postgresql.sql").write_text("\n".join(kept) + "\n")
    _write_lines(folder / "files.jsonl", _files_in(home))


def rows(folder: Path) -> dict[str, list[Row]]:
    """The recorded rows by table: numbers, texts, bytes and None, as SQLite has them."""
    recorded = defaultdict(list)
    for line in _lines(folder / "rows.jsonl"):
        table, row = line["table"], line["row"]
        recorded[table].append({key: _plain(value) for key, value in row.items()})
    return dict(recorded)


def files(folder: Path) -> dict[str, bytes]:
    """The recorded files by their path in the home."""
    return {line["path"]: _content(line) for line in _lines(folder / "files.jsonl")}


def restore(folder: Path, home: Path, url: str) -> None:
    """Make the home again, and its database of that time at `url`."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for line in _lines(folder / "files.jsonl"):
        file = home / line["path"]
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_bytes(_content(line))
        file.chmod(line["mode"])
    target = sa.make_url(url)
    if target.get_backend_name() == "sqlite":
        with sqlite3.connect(str(target.database)) as connection:
            connection.executescript((folder / "schema.sqlite.sql").read_text())
            for table, recorded in rows(folder).items():
                names = ", ".join(f'"{name}"' for name in recorded[0])
                marks = ", ".join("?" for _ in recorded[0])
                insert = f'INSERT INTO "{table}" ({names}) VALUES ({marks})'
                connection.executemany(insert, [tuple(row.values()) for row in recorded])
        connection.close()
        Path(str(target.database)).chmod(0o600)
    else:
        _fill_postgres(folder, target)


def _fill_postgres(folder: Path, url: sa.URL) -> None:
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"))
    schema = (folder / "schema.postgresql.sql").read_text().replace("CREATE SCHEMA public;", "")
    with engine.begin() as connection:
        connection.exec_driver_sql(schema)
        connection.exec_driver_sql("SET search_path TO public")
        tables = sa.MetaData()
        tables.reflect(connection)
        recorded = rows(folder)
        for table in tables.sorted_tables:
            if table.name in recorded:
                typed = [typed_row(table, row) for row in recorded[table.name]]
                connection.execute(table.insert(), typed)
                _number_on(connection, table)
    engine.dispose()


def typed_row(table: sa.Table, row: Row) -> Row:
    """A row of SQLite's kinds, as PostgreSQL's kinds of columns have it."""
    return {name: _typed(table.columns[name].type, value) for name, value in row.items()}


def _typed(kind: Any, value: Any) -> Any:
    if value is None:
        return sa.null() if isinstance(kind, sa.JSON) else None
    if isinstance(kind, sa.JSON):
        return json.loads(value)
    if isinstance(kind, sa.Boolean):
        return bool(value)
    return value


def _number_on(connection: sa.Connection, table: sa.Table) -> None:
    """PostgreSQL does not count rows that came with their numbers."""
    for column in table.primary_key:
        if column.server_default is not None or column.identity is not None:
            connection.exec_driver_sql(
                f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column.name}'), "
                f"(SELECT MAX({column.name}) FROM {table.name}))"
            )


def _rows_in(connection: sqlite3.Connection) -> Iterator[Row]:
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    for (table,) in connection.execute(f"{tables} ORDER BY name").fetchall():
        found = connection.execute(f'SELECT * FROM "{table}"')
        names = [column[0] for column in found.description]
        made = [dict(zip(names, map(_written, row), strict=True)) for row in found]
        for row in sorted(made, key=json.dumps):
            yield {"table": table, "row": row}


def _written(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _plain(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


def _files_in(home: Path) -> Iterator[Row]:
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home)
        left_out = name.parts[0] in _LEFT_OUT or name.as_posix() in _LEFT_OUT_FILES
        if left_out or path.suffix == ".lock" or path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        about: Row = {"path": name.as_posix(), "mode": path.stat().st_mode & 0o777}
        try:
            yield {**about, "text": content.decode()}
        except UnicodeDecodeError:
            yield {**about, "base64": base64.b64encode(content).decode()}


def _content(line: Row) -> bytes:
    if "text" in line:
        return str(line["text"]).encode()
    return base64.b64decode(line["base64"])


def _write_lines(file: Path, lines: Iterator[Row]) -> None:
    with file.open("w") as writing:
        for line in lines:
            text = json.dumps(line, ensure_ascii=False)
            assert len(text) < _LONGEST_LINE, f"too large to be recorded: {text[:200]}"
            writing.write(f"{text}\n")


def _lines(file: Path) -> Iterator[Row]:
    with file.open() as reading:
        yield from map(json.loads, reading)
