"""Accounts of OpenID Connect providers, each bound to one person."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0106"
down_revision = "0105"


def upgrade() -> None:
    op.create_table(
        "subjects",
        sa.Column("issuer", sa.String(255), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("user", sa.String(128), nullable=False),
        sa.Column("bound_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("issuer", "subject", name=op.f("pk_subjects")),
        sa.UniqueConstraint("issuer", "user", name=op.f("uq_subjects_issuer_user")),
    )
