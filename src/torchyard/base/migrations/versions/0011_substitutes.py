"""Whether a workspace takes something else in the place of a published environment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("workspaces", sa.Column("allow_substitutes", sa.Boolean(), nullable=True))
