"""What is still needed of what lies on the disk.

Owns: finding every snapshot and stored folder that any record names, the environments and inputs
of jobs that have not ended, attempts whose folder is theirs.
Leaves: removing the rest to reclaiming.py.
Always: in doubt a thing is named: every text of every table is looked through, those of tables to
come as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    String,
    Table,
    Text,
    cast,
    literal,
    or_,
    select,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

from torchyard.base.db import metadata
from torchyard.data import codes
from torchyard.data.datastores import MODELS, UPLOADS
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.types import ENDED

_SNAPSHOT = re.compile(r"snapshot:([0-9a-f]{64})")
# The last part of a stored folder's path, in a path or in a URL.
_STORED = re.compile(r"(?:/|%2[fF])([0-9a-f]{32}|[0-9a-f]{12})(?![0-9a-f])")
# These say what is in a folder, and keep nothing.
_ABOUT_FILES = ("checksums", "file_properties")


def snapshots(connection: Connection) -> dict[tuple[str, str], list[str]]:
    """Who names each snapshot, in words for users, by workspace and snapshot.

    The workspace is empty for rows of tables that have none.
    """
    users: dict[tuple[str, str], set[str]] = defaultdict(set)
    for table in metadata.sorted_tables:
        about = [
            table.c[name] if name in table.c else literal("") for name in ("workspace", "name")
        ]
        for workspace, name, *texts in _rows_with(connection, table, "snapshot:", first=about):
            for text in texts:
                for snapshot in _SNAPSHOT.findall(text or ""):
                    users[workspace, snapshot].add(_shown(table.name, name or ""))
    return {named: sorted(by) for named, by in users.items()}


def snapshots_by_workspace(connection: Connection) -> list[tuple[str, str]]:
    """Each workspace with each snapshot that its records name."""
    named = {named for named in snapshots(connection) if named[0]}
    rows = connection.execute(select(codes.codes.c.workspace, codes.codes.c.snapshot))
    return sorted(named | {(row.workspace, row.snapshot) for row in rows})


def stored_folders(connection: Connection) -> set[str]:
    """The names of folders of models and uploads that any text of any record has."""
    folders: set[str] = set()
    for table in metadata.sorted_tables:
        if table.name in _ABOUT_FILES:
            continue
        for row in _rows_with(connection, table, UPLOADS, MODELS):
            for text in row:
                if text and (UPLOADS in text or MODELS in text):
                    folders.update(_STORED.findall(text))
    return folders


def _rows_with(
    connection: Connection, table: Table, *parts: str, first: Sequence[ColumnElement[str]] = ()
) -> Iterable[Sequence[Any]]:
    """All texts of the rows that have one of these parts in any text, `first` before them."""
    texts = [cast(column, Text) for column in table.c if _is_text(column.type)]
    if not texts:
        return ()
    query = select(*first, *texts)
    having = or_(*(text.contains(part) for text in texts for part in parts))
    return connection.execute(query.where(having))


def _is_text(kind: TypeEngine[Any]) -> bool:
    """Whether a column holds texts or documents, also one whose secrets are sealed."""
    kept = kind.impl_instance if isinstance(kind, TypeDecorator) else kind
    return isinstance(kept, (String, JSON))


def environments(connection: Connection) -> Mapping[str, str]:
    """By hash, a job that needs it: one that has not ended, or whose nodes are not cleaned yet."""
    jobs, attempts = store.jobs, attempt_store.attempts
    unclean = select(attempts.c.job_id).where(attempts.c.clean.is_(False))
    query = select(jobs.c.environment_hash, jobs.c.name).where(
        ~store.IS_RUN,
        jobs.c.status.not_in([status.value for status in ENDED]) | jobs.c.id.in_(unclean),
    )
    return {row.environment_hash: row.name for row in connection.execute(query)}


def oldest_with_inputs(connection: Connection) -> tuple[datetime, str] | None:
    """When the oldest job was created that may still read its inputs, and its name."""
    jobs, attempts = store.jobs, attempt_store.attempts
    unclean = select(attempts.c.job_id).where(attempts.c.clean.is_(False))
    query = (
        select(jobs.c.created_at, jobs.c.name, jobs.c.spec)
        .where(
            ~store.IS_RUN,
            jobs.c.status.not_in([status.value for status in ENDED]) | jobs.c.id.in_(unclean),
        )
        .order_by(jobs.c.created_at)
    )
    for row in connection.execute(query):
        if row.spec.get("inputs"):
            return row.created_at, row.name
    return None


def attempts_with_folder(connection: Connection) -> Mapping[str, str]:
    """The job of each attempt whose scratch folder is not cleaned yet."""
    query = select(attempt_store.attempts.c.id, attempt_store.attempts.c.job_name).where(
        attempt_store.attempts.c.clean.is_(False)
    )
    return {row.id: row.job_name for row in connection.execute(query)}


def _shown(table: str, name: str) -> str:
    kind = table.removesuffix("s").replace("_", " ")
    return f"{kind} `{name}`" if name else kind
