"""Sessions of the web page: which token one was begun with, and the codes of sign-in links."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0115"
down_revision = "0114"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("source", sa.String(64), nullable=True))
    op.create_index(op.f("ix_tokens_source"), "tokens", ["source"])
    op.create_table(
        "sign_in_codes",
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_sign_in_codes")),
    )
