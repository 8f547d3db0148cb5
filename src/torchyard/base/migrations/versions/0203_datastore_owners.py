"""Record who made a datastore; of those that are there nobody knows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0203"
down_revision = "0200"


def upgrade() -> None:
    op.add_column(
        "datastores", sa.Column("owner", sa.String(128), nullable=False, server_default="")
    )
