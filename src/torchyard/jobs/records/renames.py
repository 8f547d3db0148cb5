"""Jobs whose name or description changed since text_index.py last looked at them.

Owns: the table, a row each time.
Leaves: reading it to text_index.py.
Always: the row is written in the transaction that changes the job.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, Table, insert

from torchyard.base.db import metadata
from torchyard.jobs.records.experiment_store import Id

job_renames = Table(
    "job_renames",
    metadata,
    Column("id", Id, primary_key=True),
    Column("job", BigInteger, nullable=False),
)
_ADD = insert(job_renames)


def note(connection: Connection, job_id: int) -> None:
    connection.execute(_ADD, {"job": job_id})
