"""Jobs that are being deleted, and how long a workspace keeps its jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column(
        "workspaces",
        sa.Column("retention_days", sa.Integer(), nullable=False, server_default=sa.text("0")),
    )
    op.create_index("ix_jobs_workspace_id", "jobs", ["workspace", "id"])
    op.create_table(
        "removed_jobs",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("asked_by", sa.String(length=128), nullable=False),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_removed_jobs")),
    )
    op.create_index(op.f("ix_removed_jobs_done_at"), "removed_jobs", ["done_at"], unique=False)
