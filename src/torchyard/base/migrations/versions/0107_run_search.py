"""Indexes for lists and searches over many runs: the newest, by name, the best by a metric."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0107"
down_revision = "0106"


def upgrade() -> None:
    start = sa.text("coalesce(started_at, created_at) DESC")
    op.create_index("ix_jobs_newest", "jobs", ["experiment_id", "deleted", start, "name"])
    run_name = sa.text("(CASE WHEN display_name = '' THEN name ELSE display_name END)")
    op.create_index("ix_jobs_by_name", "jobs", ["experiment_id", "deleted", run_name])
    op.create_index("ix_metrics_best", "metrics", ["key", "latest_value", "job_id"])
