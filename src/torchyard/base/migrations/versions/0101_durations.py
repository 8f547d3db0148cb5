"""How long jobs ran, by a clock that nobody sets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"


def upgrade() -> None:
    op.add_column(
        "jobs", sa.Column("started_steady", sa.String(64), nullable=False, server_default="")
    )
    op.add_column("jobs", sa.Column("duration_s", sa.Float(), nullable=True))
