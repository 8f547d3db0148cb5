"""Secrets in the records are sealed: what was written in clear is written again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from torchyard.base.db import metadata
from torchyard.base.sealed_columns import seal_all

revision = "0205"
down_revision = "0203"


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        for column in ("primary", "secondary", "token_secret"):
            op.alter_column("endpoint_keys", column, type_=sa.String(255))
    seal_all(connection, metadata)
