"""Record the jobs that count as children of other jobs than the one that they were made for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0211"
down_revision = "0210"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "adopted_jobs",
        sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("child_id", sa.BigInteger(), primary_key=True, autoincrement=False),
    )
    op.execute(
        "INSERT INTO adopted_jobs (job_id, child_id) SELECT DISTINCT job_id, child_id "
        "FROM pipeline_steps WHERE reused_from <> '' AND child_id IS NOT NULL"
    )
