"""Whom a workspace tells of the end of its jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0122"
down_revision = "0121"


def upgrade() -> None:
    op.add_column(
        "workspaces", sa.Column("notifications", sa.JSON(), nullable=False, server_default="{}")
    )
