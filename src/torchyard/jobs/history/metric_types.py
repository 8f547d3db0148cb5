"""Which metrics were logged as integers or as true and false.

Owns: the table of their types, its SQL.
Leaves: the numbers to history.py, protocols to azureml/.
Always: a metric without a type here is of floats; the type of a metric is that of its first point.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import BigInteger, Column, Connection, String, Table, delete, select

from torchyard.base.db import insert_new, metadata

metric_types = Table(
    "metric_types",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("key", String(250), primary_key=True),
    Column("type", String(16), nullable=False),
)


def add(connection: Connection, job_id: int, types: Mapping[str, str]) -> None:
    """Add those of keys that have none yet."""
    rows = [{"job_id": job_id, "key": key, "type": type} for key, type in types.items()]
    insert_new(connection, metric_types, rows)


def of_job(connection: Connection, job_id: int) -> dict[str, str]:
    """By key, of metrics that are not floats."""
    table = metric_types.c
    query = select(table.key, table.type).where(table.job_id == job_id)
    return {key: type for key, type in connection.execute(query)}


def drop(connection: Connection, job_id: int) -> None:
    connection.execute(delete(metric_types).where(metric_types.c.job_id == job_id))
