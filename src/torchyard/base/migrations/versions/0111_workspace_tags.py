"""A workspace's display name, its tags, and the keys of Azure's schema that were set."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0111"
down_revision = "0110"


def upgrade() -> None:
    for column in (
        sa.Column("display_name", sa.String(256), nullable=False, server_default=""),
        sa.Column("tags", sa.JSON(), nullable=False, server_default="{}"),
        sa.Column("azure_keys", sa.JSON(), nullable=False, server_default="{}"),
    ):
        op.add_column("workspaces", column)
