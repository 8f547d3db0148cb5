"""Record whether SDK v1's `run.log` or MLflow owns a metric; of those that are there nobody knows.

Earlier, steps that `run.log` logged stood in a tail moved far below zero.
"""

from __future__ import annotations

import struct

import sqlalchemy as sa
from alembic import op

revision = "0207"
down_revision = "0206"

_MOVED = range(-(2**61), -(2**61) + 2**53)


def upgrade() -> None:
    op.add_column("metrics", sa.Column("by_run_log", sa.Boolean()))
    connection = op.get_bind()
    metrics = sa.table(
        "metrics",
        sa.column("job_id", sa.BigInteger),
        sa.column("key", sa.String),
        sa.column("tail", sa.LargeBinary),
    )
    rows = connection.execute(sa.select(metrics).execution_options(yield_per=1000))
    changed = [(row.job_id, row.key, tail) for row in rows if (tail := _own_steps(row.tail))]
    for job_id, key, tail in changed:
        of_key = (metrics.c.job_id == job_id) & (metrics.c.key == key)
        connection.execute(sa.update(metrics).where(of_key).values(tail=tail))


def _own_steps(tail: bytes) -> bytes | None:
    """The tail with its steps moved back; None where none was moved."""
    third = len(tail) // 3
    steps = struct.unpack(f"<{third // 8}q", tail[third : 2 * third])
    if not any(step in _MOVED for step in steps):
        return None
    own = [step - _MOVED.start if step in _MOVED else step for step in steps]
    return tail[:third] + struct.pack(f"<{len(own)}q", *own) + tail[2 * third :]
