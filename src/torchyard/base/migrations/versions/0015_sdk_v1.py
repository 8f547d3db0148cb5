"""What SDK v1 logs that is no number, and its definitions of datasets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "metric_rows",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("row_id", sa.String(64), nullable=False),
        sa.Column("key", sa.String(250), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("columns", sa.JSON(), nullable=False),
        sa.Column("values", sa.JSON(), nullable=False),
        sa.Column("step", sa.BigInteger()),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_metric_rows")),
        sa.UniqueConstraint("job_id", "row_id", name=op.f("uq_metric_rows_job_id_row_id")),
    )
    op.create_index(op.f("ix_metric_rows_job_id"), "metric_rows", ["job_id"])
    op.create_table(
        "saved_datasets",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("dataflow", sa.Text(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "id", name=op.f("pk_saved_datasets")),
    )
