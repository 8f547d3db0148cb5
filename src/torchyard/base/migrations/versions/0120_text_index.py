"""Jobs by three letters in a row of their texts, and parameters by their number."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0120"
down_revision = "0119"

_NUMBERS = {
    "sqlite": """
        CREATE INDEX ix_params_numbers ON params ("key", (CASE WHEN (CASE WHEN
        (json_valid(value) = 1) THEN json_type(value) END IN ('integer', 'real'))
        THEN CAST(value AS DOUBLE) END), job_id)
    """,
    "postgresql": r"""
        CREATE INDEX ix_params_numbers ON params (key, (CASE WHEN
        (value ~ '^-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$')
        THEN CAST(value AS DOUBLE PRECISION) END), job_id)
    """,
}


def upgrade() -> None:
    op.execute(_NUMBERS[op.get_bind().dialect.name])
    op.create_table(
        "job_letters",
        sa.Column("batch", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("letters", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ids", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("batch", "letters", name=op.f("pk_job_letters")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "job_renames",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("job", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_renames")),
    )
