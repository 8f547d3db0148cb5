"""Record which metrics the worker sampled; so far their keys said so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0209"
down_revision = "0208"

_KEYS = ("system/node-", "system/rank-")


def upgrade() -> None:
    op.add_column(
        "metrics", sa.Column("sampled", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    metrics = sa.table("metrics", sa.column("key", sa.String), sa.column("sampled", sa.Boolean))
    start = sa.func.substr(metrics.c.key, 1, len(_KEYS[0]))
    op.execute(sa.update(metrics).where(start.in_(_KEYS)).values(sampled=sa.true()))
