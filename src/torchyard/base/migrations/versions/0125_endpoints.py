"""Online endpoints, their keys, deployments and instances."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0125"
down_revision = "0124"


def upgrade() -> None:
    _add_endpoints()
    _add_deployments()


def _add_endpoints() -> None:
    op.create_table(
        "endpoints",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("auth_mode", sa.String(16), nullable=False),
        sa.Column("traffic", sa.JSON(), nullable=False),
        sa.Column("mirror_traffic", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "name", name=op.f("pk_endpoints")),
    )
    op.create_table(
        "endpoint_keys",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("primary", sa.String(128), nullable=False),
        sa.Column("secondary", sa.String(128), nullable=False),
        sa.Column("token_secret", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "endpoint", name=op.f("pk_endpoint_keys")),
    )


def _add_deployments() -> None:
    op.create_table(
        "deployments",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("served_document", sa.JSON(), nullable=False),
        sa.Column("served_revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "endpoint", "name", name=op.f("pk_deployments")),
    )
    op.create_table(
        "deployment_instances",
        sa.Column("workspace", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("deployment", sa.String(64), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("job", sa.String(256), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("starts", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint(
            "workspace",
            "endpoint",
            "deployment",
            "revision",
            "number",
            name=op.f("pk_deployment_instances"),
        ),
    )
