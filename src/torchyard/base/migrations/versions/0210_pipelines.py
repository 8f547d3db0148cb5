"""Record pipelines and their steps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0210"
down_revision = "0209"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "pipelines",
        sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("outputs", sa.JSON(), nullable=False),
        sa.Column("ends_as", sa.String(20), nullable=False),
    )
    op.create_table(
        "pipeline_steps",
        sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(512), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("takes", sa.JSON(), nullable=False),
        sa.Column("component", sa.String(512), nullable=False),
        sa.Column("is_deterministic", sa.Boolean(), nullable=False),
        sa.Column("outcome", sa.String(12), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("child_id", sa.BigInteger()),
        sa.Column("child_name", sa.String(256), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("recipe", sa.JSON()),
        sa.Column("reused_from", sa.String(256), nullable=False),
    )
    op.create_index("ix_pipeline_steps_child_id", "pipeline_steps", ["child_id"])
    op.create_index("ix_pipeline_steps_key", "pipeline_steps", ["key"])
