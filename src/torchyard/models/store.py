"""The table of models."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Integer,
    Row,
    String,
    Table,
    Text,
    func,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.models.types import Model, ModelFile

models = Table(
    "models",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("type", String(32), nullable=False),
    Column("source", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("job", String(256), nullable=False, index=True),
    Column("created_at", Instant, nullable=False),
    Column("owner", String(128), nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("files", JSON, nullable=False),
    Column("single", Boolean, nullable=False),
    Column("archived", Boolean, nullable=False),
)


def add(connection: Connection, model: Model) -> None:
    values = {**vars(model), "files": [vars(file) for file in model.files]}
    connection.execute(insert(models).values(values))


def last_version(connection: Connection, workspace: str, name: str) -> int:
    """The highest version, 0 when there is none."""
    return int(
        connection.execute(
            select(func.coalesce(func.max(models.c.version), 0)).where(
                models.c.workspace == workspace, models.c.name == name
            )
        ).scalar_one()
    )


def get(connection: Connection, workspace: str, name: str, version: int) -> Model | None:
    row = connection.execute(
        select(models).where(
            models.c.workspace == workspace, models.c.name == name, models.c.version == version
        )
    ).one_or_none()
    return None if row is None else _model(row)


def list_all(connection: Connection, workspace: str, name: str = "") -> list[Model]:
    """Newest first: `latest` is the one that was made last, whatever its number."""
    wanted = [models.c.workspace == workspace]
    if name:
        wanted.append(models.c.name == name)
    rows = connection.execute(
        select(models).where(*wanted).order_by(models.c.created_at.desc(), models.c.version.desc())
    )
    return [_model(row) for row in rows]


def change(
    connection: Connection, workspace: str, name: str, version: int | None, **values: Any
) -> None:
    """One version, or all when `version` is None."""
    wanted = [models.c.workspace == workspace, models.c.name == name]
    if version is not None:
        wanted.append(models.c.version == version)
    connection.execute(update(models).where(*wanted).values(values))


def of_job(connection: Connection, workspace: str, job: str) -> list[Model]:
    rows = connection.execute(
        select(models)
        .where(models.c.workspace == workspace, models.c.job == job)
        .order_by(models.c.name, models.c.version)
    )
    return [_model(row) for row in rows]


def _model(row: Row[Any]) -> Model:
    values = dict(row._mapping)
    values["files"] = tuple(ModelFile(**file) for file in values["files"])
    return Model(**values)
