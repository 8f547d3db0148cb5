"""A migration after the newest one, as a later version may bring it; for tests of upgrades."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from torchyard.base.db import SCHEMA_VERSION

revision = f"{int(SCHEMA_VERSION) + 1:04}"
down_revision = SCHEMA_VERSION


def upgrade() -> None:
    op.add_column(
        "jobs", sa.Column("cost_center", sa.String(64), nullable=False, server_default="")
    )
    op.create_table(
        "job_notes",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_notes")),
    )
    op.create_index("ix_job_notes_note", "job_notes", ["note"])
    op.execute("INSERT INTO job_notes (job_id, note) SELECT id, display_name FROM jobs")
