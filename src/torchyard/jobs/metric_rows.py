"""What runs log that is no number: rows of several columns, texts, names of images and curves.

Owns: the table of such rows, their SQL.
Leaves: numbers with a name to history.py, files to artifacts.py, protocols to azureml/.
Always: a row is kept once, known by the id that its client gave it; rows of a name come back in
the order in which they arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Integer,
    String,
    Table,
    UniqueConstraint,
    delete,
    select,
)

from torchyard.base.db import Instant, insert_new, metadata

metric_rows = Table(
    "metric_rows",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("job_id", BigInteger, nullable=False, index=True),
    Column("row_id", String(64), nullable=False),
    Column("key", String(250), nullable=False),
    Column("kind", String(64), nullable=False),
    Column("columns", JSON, nullable=False),
    Column("values", JSON, nullable=False),
    Column("step", BigInteger),
    Column("at", Instant, nullable=False),
    UniqueConstraint("job_id", "row_id"),
)


@dataclass(frozen=True)
class Row:
    """One row of a metric. `kind` is the client's word for how it is shown; `columns` are types
    by name, `values` the row's own by name.
    """

    row_id: str
    key: str
    kind: str
    columns: dict[str, str]
    values: dict[str, Any]
    at: datetime
    step: int | None = None


def add(connection: Connection, job_id: int, rows: Sequence[Row]) -> None:
    """Add those that are not there yet."""
    for row in rows:
        insert_new(connection, metric_rows, [{"job_id": job_id, **vars(row)}])


def of_job(connection: Connection, job_id: int, key: str = "") -> list[Row]:
    """In order of arrival; those of one key, or all."""
    query = select(metric_rows).where(metric_rows.c.job_id == job_id)
    if key:
        query = query.where(metric_rows.c.key == key)
    found = connection.execute(query.order_by(metric_rows.c.number)).mappings()
    return [
        Row(**{name: value for name, value in row.items() if name not in ("number", "job_id")})
        for row in found
    ]


def drop(connection: Connection, job_id: int) -> None:
    connection.execute(delete(metric_rows).where(metric_rows.c.job_id == job_id))
