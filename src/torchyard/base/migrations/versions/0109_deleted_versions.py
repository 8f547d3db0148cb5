"""The versions of data and environments that were deleted: none is used again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0109"
down_revision = "0108"


def upgrade() -> None:
    op.create_table(
        "deleted_versions",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("version", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint(
            "workspace", "kind", "name", "version", name=op.f("pk_deleted_versions")
        ),
    )
