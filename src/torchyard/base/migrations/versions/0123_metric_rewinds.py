"""Points that resumed runs log again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0123"
down_revision = "0122"


def upgrade() -> None:
    op.create_table(
        "metric_rewinds",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.String(250), nullable=False),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("points", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_metric_rewinds")),
    )
    op.create_index(op.f("ix_metric_rewinds_job_id"), "metric_rewinds", ["job_id"])
