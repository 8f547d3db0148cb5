"""The tables of models: names, and their versions."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
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
    delete,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, insert_new, metadata
from torchyard.models.types import Model, ModelFile, Registered

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
    Column("updated_at", Instant),
    Column("run_link", Text, nullable=False, server_default=""),
    Column("model_id", String(64), nullable=False, server_default=""),
)

registered_models = Table(
    "registered_models",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(256), primary_key=True),
    Column("description", Text, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("aliases", JSON, nullable=False),
    Column("last_version", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
)


def add(connection: Connection, model: Model) -> None:
    values = {**vars(model), "files": [vars(file) for file in model.files]}
    connection.execute(insert(models).values(values))


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
    connection.execute(update(models).where(*_versions(workspace, name, version)).values(values))


def drop(connection: Connection, workspace: str, name: str, version: int | None) -> None:
    """One version, or all when `version` is None."""
    connection.execute(delete(models).where(*_versions(workspace, name, version)))


def of_job(connection: Connection, workspace: str, job: str) -> list[Model]:
    rows = connection.execute(
        select(models)
        .where(models.c.workspace == workspace, models.c.job == job)
        .order_by(models.c.name, models.c.version)
    )
    return [_model(row) for row in rows]


def add_name(connection: Connection, made: Registered) -> None:
    """Nothing when the name is there."""
    insert_new(connection, registered_models, [vars(made)])


def name_row(connection: Connection, workspace: str, name: str) -> Registered | None:
    row = connection.execute(
        select(registered_models).where(
            registered_models.c.workspace == workspace, registered_models.c.name == name
        )
    ).one_or_none()
    return None if row is None else Registered(**row._mapping)


def names_in(
    connection: Connection, workspace: str, names: Collection[str] | None = None
) -> list[Registered]:
    """Sorted by name."""
    wanted = [registered_models.c.workspace == workspace]
    if names is not None:
        wanted.append(registered_models.c.name.in_(names))
    rows = connection.execute(
        select(registered_models).where(*wanted).order_by(registered_models.c.name)
    )
    return [Registered(**row._mapping) for row in rows]


def change_name(connection: Connection, workspace: str, name: str, **values: Any) -> None:
    connection.execute(
        update(registered_models)
        .where(registered_models.c.workspace == workspace, registered_models.c.name == name)
        .values(values)
    )


def drop_name(connection: Connection, workspace: str, name: str) -> None:
    connection.execute(
        delete(registered_models).where(
            registered_models.c.workspace == workspace, registered_models.c.name == name
        )
    )


def rename(connection: Connection, workspace: str, name: str, new: str, now: datetime) -> None:
    for table in (registered_models, models):
        connection.execute(
            update(table)
            .where(table.c.workspace == workspace, table.c.name == name)
            .values(name=new, updated_at=now)
        )


def _versions(workspace: str, name: str, version: int | None) -> list[Any]:
    wanted = [models.c.workspace == workspace, models.c.name == name]
    if version is not None:
        wanted.append(models.c.version == version)
    return wanted


def _model(row: Row[Any]) -> Model:
    values = dict(row._mapping)
    values["files"] = tuple(ModelFile(**file) for file in values["files"])
    return Model(**values)
