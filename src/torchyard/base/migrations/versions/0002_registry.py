"""Registered models, their versions and aliases; MLflow 3's logged models."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("models", sa.Column("updated_at", sa.BigInteger(), nullable=True))
    op.add_column(
        "models", sa.Column("run_link", sa.Text(), nullable=False, server_default=sa.text("''"))
    )
    op.add_column(
        "models",
        sa.Column("model_id", sa.String(length=64), nullable=False, server_default=sa.text("''")),
    )
    op.create_table(
        "registered_models",
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("aliases", sa.JSON(), nullable=False),
        sa.Column("last_version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "name", name=op.f("pk_registered_models")),
    )
    op.create_table(
        "logged_models",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("experiment_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=500), nullable=False),
        sa.Column("run", sa.String(length=256), nullable=False),
        sa.Column("folder", sa.String(length=1024), nullable=False),
        sa.Column("type", sa.String(length=500), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_logged_models")),
        sa.UniqueConstraint("workspace", "folder", name=op.f("uq_logged_models_workspace_folder")),
    )
    op.create_index(
        op.f("ix_logged_models_experiment_id"), "logged_models", ["experiment_id"], unique=False
    )
    op.create_index(
        op.f("ix_logged_models_workspace_run"), "logged_models", ["workspace", "run"], unique=False
    )
    op.create_table(
        "logged_model_metrics",
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("model_id", sa.String(length=64), nullable=False),
        sa.Column("run", sa.String(length=256), nullable=False),
        sa.Column("key", sa.String(length=250), nullable=False),
        sa.Column("dataset_name", sa.String(length=500), nullable=False),
        sa.Column("dataset_digest", sa.String(length=128), nullable=False),
        sa.Column("timestamp", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint(
            "workspace",
            "model_id",
            "run",
            "key",
            "dataset_name",
            "dataset_digest",
            name=op.f("pk_logged_model_metrics"),
        ),
    )
    op.create_table(
        "run_models",
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("run", sa.String(length=256), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("model_id", sa.String(length=64), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "workspace", "run", "kind", "model_id", "step", name=op.f("pk_run_models")
        ),
    )
    _name_what_is_registered()


def _name_what_is_registered() -> None:
    """Every name that has versions becomes a registered model."""
    models = sa.table(
        "models",
        sa.column("workspace"),
        sa.column("name"),
        sa.column("version"),
        sa.column("created_at"),
    )
    registered = sa.table(
        "registered_models",
        sa.column("workspace"),
        sa.column("name"),
        sa.column("description"),
        sa.column("tags", sa.JSON()),
        sa.column("aliases", sa.JSON()),
        sa.column("last_version"),
        sa.column("created_at"),
        sa.column("updated_at"),
    )
    found = op.get_bind().execute(
        sa.select(
            models.c.workspace,
            models.c.name,
            sa.func.max(models.c.version).label("last_version"),
            sa.func.min(models.c.created_at).label("created_at"),
            sa.func.max(models.c.created_at).label("updated_at"),
        ).group_by(models.c.workspace, models.c.name)
    )
    rows: list[dict[str, Any]] = [
        {**row._mapping, "description": "", "tags": {}, "aliases": {}} for row in found
    ]
    if rows:
        op.bulk_insert(registered, rows)
