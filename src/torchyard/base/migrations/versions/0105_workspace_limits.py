"""Limits of a workspace's jobs: processes, disk and network."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0105"
down_revision = "0101"


def upgrade() -> None:
    for column in (
        sa.Column("max_processes", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("disk_quota_mb", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("network", sa.String(16), nullable=False, server_default="open"),
    ):
        op.add_column("workspaces", column)
