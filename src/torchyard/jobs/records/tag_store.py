"""The table by which jobs are found by a tag.

Owns: its SQL, how much of a key and a value it holds.
Leaves: the tags themselves to store.py, which has them in each job's row.
Always: it holds at least the jobs that have a tag, written in the transaction that writes the tag;
who searches by it still looks at the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Delete,
    String,
    Table,
    bindparam,
    delete,
)

from torchyard.base.db import execute_each, insert_if_new, metadata

_KEY_LENGTH = 250
VALUE_LENGTH = 64
"""How many characters of a value are looked for by an index."""

# In SQLite the table is its own index.
job_tags = Table(
    "job_tags",
    metadata,
    Column("key", String(_KEY_LENGTH), primary_key=True),
    Column("value", String(VALUE_LENGTH), primary_key=True),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

_REMOVE: Delete = delete(job_tags).where(
    job_tags.c.key == bindparam("the_key"),
    job_tags.c.value == bindparam("the_value"),
    job_tags.c.job_id == bindparam("the_job"),
)


def key_of(tag: str) -> str:
    """What the table holds of a tag's key."""
    return _storable(tag, _KEY_LENGTH)


def value_of(text: str) -> str:
    """What the table holds of a tag's value."""
    return _storable(text, VALUE_LENGTH)


def _storable(text: str, length: int) -> str:
    if len(text) <= length and text.isascii() and "\0" not in text:
        return text
    # JSON has characters that PostgreSQL's texts lack.
    return text.partition("\0")[0][:length].encode("utf-8", "replace").decode()


def rows_of(job_id: int, tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value, "job_id": job_id} for key, value in sorted(_entries(tags))]


def add(connection: Connection, tags_by_job: Mapping[int, Mapping[str, str]]) -> None:
    rows = [row for job_id, tags in tags_by_job.items() for row in rows_of(job_id, tags)]
    execute_each(connection, insert_if_new(connection, job_tags), rows)


def replace(
    connection: Connection, job_id: int, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Of a job whose row is locked."""
    old, new = _entries(before), _entries(after)
    execute_each(
        connection,
        _REMOVE,
        [
            {"the_key": key, "the_value": value, "the_job": job_id}
            for key, value in sorted(old - new)
        ],
    )
    execute_each(connection, insert_if_new(connection, job_tags), _rows(job_id, new - old))


def _rows(job_id: int, entries: set[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value, "job_id": job_id} for key, value in sorted(entries)]


def _entries(tags: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(key_of(key), value_of(str(value))) for key, value in tags.items()}
