"""Which metrics were logged as integers or as true and false."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0108"
down_revision = "0107"


def upgrade() -> None:
    op.create_table(
        "metric_types",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.String(250), nullable=False),
        sa.Column("type", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_metric_types")),
    )
