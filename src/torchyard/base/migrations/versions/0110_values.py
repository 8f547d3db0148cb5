"""Indexes for filters that few jobs fit: by tag, parameter, owner, parent and submission."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0110"
down_revision = "0109"

_KEY_LENGTH, _VALUE_LENGTH = 250, 64
_ROWS = 5000
# Texts with escapes are read in Python: databases do not read all of them alike.
_ADD_PLAIN = {
    "sqlite": """
        INSERT INTO job_tags (key, value, job_id)
        SELECT DISTINCT substr(tag.key, 1, 250), substr(CAST(tag.value AS TEXT), 1, 64), jobs.id
        FROM jobs, json_each(jobs.tags) AS tag
        WHERE jobs.tags <> '{}' AND instr(jobs.tags, char(92)) = 0 AND tag.type <> 'null'
        ORDER BY 1, 2, 3
    """,
    "postgresql": """
        INSERT INTO job_tags (key, value, job_id)
        SELECT DISTINCT substr(tag.key, 1, 250), substr(tag.value, 1, 64), jobs.id
        FROM jobs, json_each_text(jobs.tags) AS tag
        WHERE jobs.tags::text <> '{}' AND strpos(jobs.tags::text, chr(92)) = 0
            AND tag.value IS NOT NULL
        ORDER BY 1, 2, 3
    """,
}
_ESCAPED = {
    "sqlite": "SELECT id, tags FROM jobs WHERE instr(tags, char(92)) > 0",
    "postgresql": "SELECT id, tags::text FROM jobs WHERE strpos(tags::text, chr(92)) > 0",
}


def upgrade() -> None:
    op.create_index("ix_jobs_owner_id", "jobs", ["owner", "id"])
    op.create_index("ix_jobs_created_at_id", "jobs", ["created_at", "id"])
    has_parent = sa.text("parent <> ''")
    op.create_index(
        "ix_jobs_parent_id",
        "jobs",
        ["parent", "id"],
        sqlite_where=has_parent,
        postgresql_where=has_parent,
    )
    op.create_index(
        "ix_params_values", "params", ["key", sa.text("substr(value, 1, 64)"), "job_id"]
    )
    table = op.create_table(
        "job_tags",
        sa.Column("key", sa.String(_KEY_LENGTH), nullable=False),
        sa.Column("value", sa.String(_VALUE_LENGTH), nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("key", "value", "job_id", name=op.f("pk_job_tags")),
        sqlite_with_rowid=False,
    )
    _fill(op.get_bind(), table)


def _fill(connection: sa.Connection, table: sa.Table) -> None:
    dialect = connection.dialect.name
    connection.exec_driver_sql(_ADD_PLAIN[dialect])
    rows: list[dict[str, Any]] = []
    for job_id, text in connection.exec_driver_sql(_ESCAPED[dialect]).all():
        for key, value in sorted(_entries(json.loads(text))):
            rows.append({"key": key, "value": value, "job_id": job_id})
    for start in range(0, len(rows), _ROWS):
        connection.execute(table.insert(), rows[start : start + _ROWS])


def _entries(tags: dict[str, Any]) -> set[tuple[str, str]]:
    return {
        (_storable(key, _KEY_LENGTH), _storable(str(value), _VALUE_LENGTH))
        for key, value in tags.items()
        if value is not None
    }


def _storable(text: str, length: int) -> str:
    return text.partition("\0")[0][:length].encode("utf-8", "replace").decode()
