"""What runs log that is not a number: rows of several columns, texts, names of images and curves.

Owns: the table of such rows, their SQL.
Leaves: numbers with a name to history.py, files to files/artifacts.py, protocols to azureml/.
Always: a row is kept once, known by the id that its client gave it; rows of a name come back in
the order in which they were logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
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
    func,
    select,
)
from typing_extensions import TypedDict

from torchyard.base.db import Instant, insert_new, metadata
from torchyard.base.errors import InvalidInput
from torchyard.shared.record_rules import KEY_MAX_LENGTH, is_int64

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

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


def read(body: Mapping[str, Any]) -> Row:
    """A row from a record, as shared/sdk_v1_records.py makes them.

    Raises:
        InvalidInput: names what is wrong.
    """
    key, row_id, moment_us = body.get("key"), body.get("id"), body.get("moment_us")
    columns, values, step = body.get("columns"), body.get("values"), body.get("step")
    if not isinstance(key, str) or not key or not isinstance(row_id, str) or not row_id:
        raise InvalidInput("a row of a metric has no name or no id")
    if not isinstance(columns, dict) or not isinstance(values, dict):
        raise InvalidInput(f"metric `{key[:100]}`: a row has no `columns` or no `values`")
    if type(moment_us) is not int or not (step is None or is_int64(step)):
        raise InvalidInput(f"metric `{key[:100]}`: a row's time or step is not an integer")
    try:
        at = _EPOCH + timedelta(microseconds=moment_us)
    except OverflowError:
        raise InvalidInput(f"metric `{key[:100]}`: a row's time is out of range") from None
    kind = str(body.get("type") or "")[:64]
    return Row(row_id[:64], key[:KEY_MAX_LENGTH], kind, columns, values, at, step)


def add(connection: Connection, job_id: int, rows: Sequence[Row]) -> None:
    """Add those that are not there yet."""
    for row in rows:
        insert_new(connection, metric_rows, [{"job_id": job_id, **vars(row)}])


def of_job(connection: Connection, job_id: int, key: str = "") -> list[Row]:
    """In the order in which they were logged; those of one key, or all."""
    query = select(metric_rows).where(metric_rows.c.job_id == job_id)
    if key:
        query = query.where(metric_rows.c.key == key)
    # Clients send several batches at once; the rows of a list have one moment.
    result = connection.execute(query.order_by(metric_rows.c.at, metric_rows.c.number)).mappings()
    return [
        Row(**{name: value for name, value in row.items() if name not in ("number", "job_id")})
        for row in result
    ]


class MetricTable(TypedDict):
    """The first `rows` of one key, each a value by column, of `count` in all."""

    key: str
    count: int
    columns: list[str]
    rows: list[dict[str, Any]]


def counts(connection: Connection, job_id: int) -> dict[str, int]:
    """How many rows each key has, by key."""
    query = (
        select(metric_rows.c.key, func.count())
        .where(metric_rows.c.job_id == job_id)
        .group_by(metric_rows.c.key)
        .order_by(metric_rows.c.key)
    )
    return {key: count for key, count in connection.execute(query)}


def tables(
    connection: Connection, job_id: int, most_tables: int, most_rows: int
) -> list[MetricTable]:
    """The tables, lists and rows that SDK v1's `log_table`, `log_list` and `log_row` logged."""
    logged_tables: list[MetricTable] = []
    for key, count in list(counts(connection, job_id).items())[:most_tables]:
        query = (
            select(metric_rows.c["values"])
            .where(metric_rows.c.job_id == job_id, metric_rows.c.key == key)
            .order_by(metric_rows.c.at, metric_rows.c.number)
            .limit(most_rows)
        )
        rows = list(connection.execute(query).scalars())
        columns = list(dict.fromkeys(name for row in rows for name in row))
        logged_tables.append({"key": key, "count": count, "columns": columns, "rows": rows})
    return logged_tables


def drop(connection: Connection, job_id: int) -> None:
    connection.execute(delete(metric_rows).where(metric_rows.c.job_id == job_id))
