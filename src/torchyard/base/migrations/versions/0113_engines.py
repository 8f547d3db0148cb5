"""Settings of engines, which one runs an attempt and what it waits for, `compute: auto`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0113"
down_revision = "0111"


def upgrade() -> None:
    op.add_column("computes", sa.Column("engine_settings", sa.JSON(), nullable=True))
    op.add_column(
        "attempts",
        sa.Column("engine", sa.String(16), nullable=False, server_default="local"),
    )
    op.add_column(
        "attempts", sa.Column("waiting_for", sa.Text(), nullable=False, server_default="")
    )
    op.add_column(
        "workspaces",
        sa.Column("auto_compute", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
