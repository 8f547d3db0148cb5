"""PostgreSQL beside SQLite: which home a database belongs to, one order of texts, large files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "installation",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("home", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_installation")),
    )
    if op.get_bind().dialect.name != "postgresql":
        return
    # SQLite's INTEGER has 64 bits already.
    op.alter_column("checksums", "size_bytes", type_=sa.BigInteger())
    # Texts sort by their characters' numbers, as in SQLite, whatever language the server speaks.
    for table, column, kind in op.get_bind().execute(sa.text(_TEXTS)).all():
        op.execute(f'ALTER TABLE "{table}" ALTER COLUMN "{column}" TYPE {kind} COLLATE "C"')


_TEXTS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0
        AND NOT a.attisdropped AND a.atttypid IN ('text'::regtype, 'varchar'::regtype)
    ORDER BY c.relname, a.attname
"""
