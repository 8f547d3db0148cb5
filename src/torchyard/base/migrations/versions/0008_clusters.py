"""Clusters that scale, sizes of one's own, priorities and preemption."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _preflight()
    _clusters()
    _queue()
    _rehearsal()


def _rehearsal() -> None:
    op.add_column(
        "workspaces",
        sa.Column("rehearse_on_cpu", sa.Boolean(), nullable=False, server_default=sa.false()),
    )


def _queue() -> None:
    op.add_column("jobs", sa.Column("turn", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("jobs", sa.Column("limit_s", sa.Float(), nullable=True))
    op.add_column("jobs", sa.Column("gpus", sa.Integer(), nullable=False, server_default="0"))
    line = ["status", "workspace", "compute", "turn", "id", "node_count"]
    op.create_index("ix_jobs_queue", "jobs", line)
    op.create_index("ix_jobs_preparing", "jobs", ["status", "environment_hash", "id"])
    op.create_index("ix_attempts_clean_ended_at", "attempts", ["clean", "ended_at"])


def _clusters() -> None:
    for column in (
        sa.Column("engine", sa.String(length=16), nullable=False, server_default="local"),
        sa.Column("cores", sa.Integer(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("gpus", sa.Integer(), nullable=True),
        sa.Column("gpu_kind", sa.String(length=64), nullable=False, server_default=""),
        sa.Column("owner", sa.String(length=128), nullable=False, server_default=""),
        sa.Column(
            "provisioning_state", sa.String(length=16), nullable=False, server_default="Succeeded"
        ),
    ):
        op.add_column("computes", column)
    op.create_table(
        "cluster_nodes",
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("compute", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("preempted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "compute", "number", name=op.f("pk_cluster_nodes")),
    )
    op.create_table(
        "cluster_counts",
        sa.Column("id", _ID, nullable=False),
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("compute", sa.String(length=64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("current", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("target", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster_counts")),
    )
    op.create_index(
        op.f("ix_cluster_counts_workspace_compute_id"),
        "cluster_counts",
        ["workspace", "compute", "id"],
    )
    op.create_table(
        "cluster_usage",
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("compute", sa.String(length=64), nullable=False),
        sa.Column("day", sa.String(length=10), nullable=False),
        sa.Column("node_seconds", sa.Double(), nullable=False),
        sa.Column("busy_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "compute", "day", name=op.f("pk_cluster_usage")),
    )
    now = int(time.time() * 1e6)
    # Nodes that jobs hold while the schema changes; since when is the attempt's to say.
    op.execute(
        "INSERT INTO cluster_nodes (workspace, compute, number, made_at, since, preempted) "
        f"SELECT s.workspace, s.compute, s.number, COALESCE(a.created_at, {now}), "
        f"COALESCE(a.created_at, {now}), false "
        "FROM node_slots s LEFT JOIN attempts a ON a.id = s.attempt_id"
    )


def _preflight() -> None:
    """What nodes know and find out before their ranks start."""
    op.add_column("attempt_nodes", sa.Column("preflight", sa.JSON()))
