"""Record how long a command ran, as its nodes measured it; of those that ran nobody knows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0208"
down_revision = "0207"


def upgrade() -> None:
    op.add_column("attempt_nodes", sa.Column("ran_s", sa.Float()))
