"""Batch endpoints, their deployments and the jobs that they were invoked for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0127"
down_revision = "0126"


def upgrade() -> None:
    op.create_table(
        "batch_endpoints",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("default_deployment", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "name", name=op.f("pk_batch_endpoints")),
    )
    op.create_table(
        "batch_deployments",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "endpoint", "name", name=op.f("pk_batch_deployments")),
    )
    op.create_table(
        "batch_jobs",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("job", sa.String(256), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("deployment", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "job", name=op.f("pk_batch_jobs")),
    )
    op.create_index(
        op.f("ix_batch_jobs_workspace_endpoint"),
        "batch_jobs",
        ["workspace", "endpoint", "created_at"],
    )
