"""Sweeps and their trials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0124"
down_revision = "0123"


def upgrade() -> None:
    job_id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "sweeps",
        sa.Column("job_id", job_id, nullable=False),
        sa.Column("max_total_trials", sa.Integer(), nullable=False),
        sa.Column("begun_at", sa.BigInteger(), nullable=True),
        sa.Column("is_exhausted", sa.Boolean(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("earlier", sa.JSON(), nullable=False),
        sa.Column("ends_as", sa.String(20), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_sweeps_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_sweeps")),
    )
    op.create_table(
        "sweep_trials",
        sa.Column("job_id", job_id, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(12), nullable=False),
        sa.Column("metric_values", sa.JSON(), nullable=False),
        sa.Column("constraint_values", sa.JSON(), nullable=False),
        sa.Column("intervals", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("promotions", sa.Integer(), nullable=False),
        sa.Column("is_paused", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_sweep_trials_job_id")),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_sweep_trials")),
    )
    op.create_index(op.f("ix_sweep_trials_trial_id"), "sweep_trials", ["trial_id"])
