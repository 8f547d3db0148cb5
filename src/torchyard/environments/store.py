"""The tables of builds and of registered environments.

Owns: rows of `environment_builds` and `environment_assets`.
Leaves: when a row is written to build/records.py.
Always: one row for each hash, of its last build; `number` counts the builds begun.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    insert,
    select,
    update,
)

from torchyard.assets.version_table import VersionTable
from torchyard.base.db import Instant, metadata
from torchyard.environments import types
from torchyard.environments.types import Build, BuildStatus, EnvironmentAsset, EnvironmentSpec

environment_builds = Table(
    "environment_builds",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("spec", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("number", Integer, nullable=False),
    Column("lock", Text, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Column("error", Text, nullable=False),
    Column("hint", Text, nullable=False),
)

environment_assets = Table(
    "environment_assets",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("name", String(256), nullable=False),
    Column("version", String(64), nullable=False),
    Column("definition", JSON, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("owner", String(128), nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("archived", Boolean, nullable=False),
    UniqueConstraint("workspace", "name", "version"),
)

# Below this name Azure ML's clients keep the environments of jobs that name none.
ANONYMOUS = "CliV2AnonymousEnvironment"

asset_versions = VersionTable(
    environment_assets, EnvironmentAsset, is_listed=environment_assets.c.name != ANONYMOUS
)


def get(connection: Connection, hash: str) -> Build | None:
    query = select(environment_builds).where(environment_builds.c.hash == hash)
    row = connection.execute(query).mappings().first()
    return None if row is None else _build(row)


def all_builds(connection: Connection) -> list[Build]:
    """Newest first."""
    query = select(environment_builds).order_by(environment_builds.c.started_at.desc())
    return [_build(row) for row in connection.execute(query).mappings()]


def begin(connection: Connection, spec: EnvironmentSpec, now: datetime) -> None:
    """Record that a build starts; keeps the lock of the previous one."""
    table = environment_builds
    values: dict[str, Any] = {
        "status": "building",
        "started_at": now,
        "ended_at": None,
        "error": "",
        "hint": "",
    }
    again = update(table).where(table.c.hash == spec.hash)
    if connection.execute(again.values(number=table.c.number + 1, **values)).rowcount:
        return
    document = json.dumps(spec.to_json())
    connection.execute(
        insert(table).values(hash=spec.hash, spec=document, number=1, lock="", **values)
    )


def end(
    connection: Connection,
    hash: str,
    status: BuildStatus,
    now: datetime,
    lock: str = "",
    error: str = "",
    hint: str = "",
) -> None:
    """Record how a build ended; an empty `lock` keeps the previous one."""
    values: dict[str, Any] = {"status": status, "ended_at": now, "error": error, "hint": hint}
    if lock:
        values["lock"] = lock
    table = environment_builds
    connection.execute(update(table).where(table.c.hash == hash).values(**values))


def _build(row: Any) -> Build:
    return Build(
        hash=row["hash"],
        spec=types.from_json(json.loads(row["spec"])),
        status=row["status"],
        number=row["number"],
        lock=row["lock"],
        error=row["error"],
        hint=row["hint"],
    )
