"""Make a database's schema, and bring it forward.

Owns: calling Alembic from code, without an ini file; the order of texts.
Leaves: when to base/db.py, the tables to the code that declares them, later steps to the files in
`versions/`.
Always: a schema is made or brought forward whole or not at all, in its caller's transaction; texts
sort by their characters' numbers, as in SQLite, whatever language a PostgreSQL server speaks.

Source: https://alembic.sqlalchemy.org/en/latest/cookbook.html#building-uptodate
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, text

# Alembic's own table, as it declares it.
# https://alembic.sqlalchemy.org/en/latest/api/runtime.html (MigrationContext)
_VERSION_TABLE = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)

# Columns of text with another order than that of their characters: those of new steps.
_TEXTS = text("""
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0
        AND NOT a.attisdropped AND a.atttypid IN ('text'::regtype, 'varchar'::regtype)
        AND a.attcollation <> 'pg_catalog."C"'::regcollation
    ORDER BY c.relname, a.attname
""")


def create(connection: Connection, tables: MetaData, version: str) -> None:
    """Make the tables in an empty database and note that they are those of `version`."""
    tables.create_all(connection)
    # As `alembic stamp` does it, whose imports take longer than the tables.
    _VERSION_TABLE.create(connection)
    connection.execute(_VERSION_TABLE.insert().values(version_num=version))
    _sort_by_characters(connection)


def upgrade(connection: Connection, version: str, migrations: Path | None = None) -> None:
    """Run every step up to `version` in the transaction of `connection`.

    Args:
        migrations: a folder with `env.py` and `versions/`; None is this one.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations or Path(__file__).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, version)
    _sort_by_characters(connection)


def _sort_by_characters(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        for table, column, kind in connection.execute(_TEXTS).all():
            connection.exec_driver_sql(
                f'ALTER TABLE "{table}" ALTER COLUMN "{column}" TYPE {kind} COLLATE "C"'
            )
