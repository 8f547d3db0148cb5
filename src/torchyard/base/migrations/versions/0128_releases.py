"""Validations and releases of environments, their schedules, advisories."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0128"
down_revision = "0127"


def upgrade() -> None:
    op.create_table(
        "environment_releases",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("job", sa.String(256), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("environment", sa.String(256), nullable=False),
        sa.Column("base", sa.String(330), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("gates", sa.JSON(), nullable=False),
        sa.Column("results", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("version", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_environment_releases")),
    )
    op.create_index(op.f("ix_environment_releases_job_id"), "environment_releases", ["job_id"])
    op.create_index(
        op.f("ix_environment_releases_environment"),
        "environment_releases",
        ["workspace", "environment", "number"],
    )
    op.create_table(
        "release_schedules",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("environment", sa.String(256), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("every_s", sa.Integer(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_job", sa.String(256), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "environment", name=op.f("pk_release_schedules")),
    )
    op.create_table(
        "advisory_sets",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("replaced_at", sa.BigInteger(), nullable=False),
        sa.Column("sent_by", sa.String(128), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", name=op.f("pk_advisory_sets")),
    )
    op.create_table(
        "advisories",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("set_id", sa.String(64), nullable=False),
        sa.Column("package", sa.String(256), nullable=False),
        sa.Column("entry", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_advisories")),
    )
    op.create_index(op.f("ix_advisories_package"), "advisories", ["workspace", "set_id", "package"])
