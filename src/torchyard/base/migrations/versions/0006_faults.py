"""Jobs that are tried again, and how each attempt ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("retry_at", sa.BigInteger()))
    op.add_column("jobs", sa.Column("avoided_slots", sa.JSON()))
    op.add_column("attempts", sa.Column("exit_code", sa.Integer()))
    op.add_column("attempts", sa.Column("error", sa.JSON()))
