"""The environment and the signature of a version of a model."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0126"
down_revision = "0125"


def upgrade() -> None:
    op.add_column("models", sa.Column("environment", sa.JSON(), nullable=True))
    op.add_column("models", sa.Column("signature", sa.JSON(), nullable=True))
