"""People, roles, quotas and what jobs have in store."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "people",
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("removed_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_people")),
    )
    op.create_table(
        "roles",
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("granted_by", sa.String(length=128), nullable=False),
        sa.Column("granted_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("user", "workspace", name=op.f("pk_roles")),
    )
    op.add_column(
        "tokens", sa.Column("name", sa.String(length=64), nullable=False, server_default="")
    )
    op.add_column("tokens", sa.Column("last_used_at", sa.BigInteger(), nullable=True))
    op.create_table(
        "quotas",
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("most", _NUMBER, nullable=False),
        sa.Column("set_by", sa.String(length=128), nullable=False),
        sa.Column("set_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "user", "name", name=op.f("pk_quotas")),
    )
    op.create_table(
        "quota_requests",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("most", _NUMBER, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("answered_by", sa.String(length=128), nullable=False),
        sa.Column("answered_at", sa.BigInteger(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quota_requests")),
    )
    op.create_index(
        op.f("ix_quota_requests_workspace"), "quota_requests", ["workspace"], unique=False
    )
    op.create_table(
        "stored_sizes",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("size_bytes", _NUMBER, nullable=False),
        sa.Column("snapshot", sa.String(length=64), nullable=False),
        sa.Column("snapshot_bytes", _NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_stored_sizes")),
    )
    _keep_owners()


def _keep_owners() -> None:
    """Whoever had a person's token could do everything, and still can."""
    known = "SELECT \"user\" AS name, MIN(created_at) AS at FROM tokens WHERE kind = 'yard_p_'"
    op.execute(
        f'INSERT INTO people (name, created_at) SELECT name, at FROM ({known} GROUP BY "user") t'
    )
    op.execute(
        'INSERT INTO roles ("user", workspace, role, granted_by, granted_at) '
        "SELECT name, '', 'owner', name, created_at FROM people"
    )
    op.execute("UPDATE tokens SET name = 'home' WHERE kind = 'yard_p_'")
