"""What searching runs needs: indexes and columns of runs and experiments."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

# Until 0003 the data sets of a run were one of its tags.
_TAG = "mlflow.torchyard.datasetInputs"


def upgrade() -> None:
    op.add_column(
        "experiments",
        sa.Column("artifact_location", sa.Text(), nullable=False, server_default=sa.text("''")),
    )
    op.add_column("experiments", sa.Column("updated_at", sa.BigInteger(), nullable=True))
    op.create_table(
        "run_datasets",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=500), nullable=False),
        sa.Column("digest", sa.String(length=128), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("context", sa.String(length=500), nullable=True),
        sa.Column("source_type", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("schema", sa.Text(), nullable=False),
        sa.Column("profile", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "name", "digest", name=op.f("pk_run_datasets")),
    )
    op.create_index("ix_run_datasets_name_job_id", "run_datasets", ["name", "job_id"])
    op.create_table(
        "run_requests",
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("request", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "request", name=op.f("pk_run_requests")),
    )
    op.create_index(
        "ix_jobs_run_search",
        "jobs",
        ["experiment_id", "deleted", "started_at", "created_at", "name", "status", "ended_at"],
    )
    _take_datasets_from_tags()


def _take_datasets_from_tags() -> None:
    jobs = sa.table("jobs", sa.column("id"), sa.column("tags", sa.JSON()))
    datasets = sa.table(
        "run_datasets",
        *(
            sa.column(name)
            for name in (
                *("job_id", "name", "digest", "place", "context"),
                *("source_type", "source", "schema", "profile"),
            )
        ),
        sa.column("tags", sa.JSON()),
    )
    connection = op.get_bind()
    written = sa.cast(jobs.c.tags, sa.Text()).like(f"%{_TAG}%")
    for row in connection.execute(sa.select(jobs).where(written)).all():
        kept = {key: value for key, value in row.tags.items() if key != _TAG}
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for item in json.loads(row.tags.get(_TAG, "[]")):
            dataset = item.get("dataset") or {}
            tags = {tag["key"]: tag.get("value", "") for tag in item.get("tags") or []}
            name, digest = str(dataset.get("name", "")), str(dataset.get("digest", ""))
            told = ("source_type", "source", "schema", "profile")
            rows[name, digest] = {
                "job_id": row.id,
                "name": name,
                "digest": digest,
                "place": len(rows),
                "context": tags.get("mlflow.data.context"),
                **{key: str(dataset.get(key) or "") for key in told},
                "tags": tags,
            }
        if rows:
            connection.execute(sa.insert(datasets), list(rows.values()))
        connection.execute(sa.update(jobs).where(jobs.c.id == row.id).values(tags=kept))
