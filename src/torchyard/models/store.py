"""The tables of models: names, and their versions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
    delete,
    select,
    update,
)

from torchyard.assets.version_table import VersionTable
from torchyard.base.db import Instant, insert_new, metadata
from torchyard.models import signatures
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
    Column("environment", JSON),
    Column("signature", JSON),
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


def _columns_of(model: Model) -> dict[str, Any]:
    return {
        **vars(model),
        "files": [vars(file) for file in model.files],
        "signature": signatures.to_json(model.signature),
    }


def _model(
    files: Collection[Mapping[str, Any]],
    environment: str | dict[str, Any] | None,
    signature: Mapping[str, Any] | None,
    **columns: Any,
) -> Model:
    return Model(
        files=tuple(ModelFile(**file) for file in files),
        environment=environment or "",
        signature=signatures.from_json(signature),
        **columns,
    )


versions = VersionTable(
    models,
    _model,
    _columns_of,
    # `latest` is the version that was made last, whatever its number.
    newest_first=[models.c.created_at.desc(), models.c.version.desc()],
)


def of_job(connection: Connection, workspace: str, job: str) -> list[Model]:
    rows = connection.execute(
        select(models)
        .where(models.c.workspace == workspace, models.c.job == job)
        .order_by(models.c.name, models.c.version)
    )
    return [_model(**row._mapping) for row in rows]


def add_name(connection: Connection, made: Registered) -> None:
    """Does nothing when the name exists."""
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
    conditions = [registered_models.c.workspace == workspace]
    if names is not None:
        conditions.append(registered_models.c.name.in_(names))
    rows = connection.execute(
        select(registered_models).where(*conditions).order_by(registered_models.c.name)
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
