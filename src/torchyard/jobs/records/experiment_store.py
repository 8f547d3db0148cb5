"""The table of experiments."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Integer,
    Row,
    String,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    delete,
    insert,
    select,
    text,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.jobs.records.types import Experiment

# A number that the database gives; SQLite does so for its plain integers only.
Id = BigInteger().with_variant(Integer, "sqlite")

experiments = Table(
    "experiments",
    metadata,
    Column("id", Id, primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("name", String(256), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("artifact_location", Text, nullable=False, server_default=text("''")),
    Column("updated_at", Instant),
    UniqueConstraint("workspace", "name"),
)


# Asked for whenever a run is made: built once.
_NAMED = select(experiments).where(
    experiments.c.workspace == bindparam("workspace"), experiments.c.name == bindparam("name")
)
_BY_ID = select(experiments).where(
    experiments.c.workspace == bindparam("workspace"), experiments.c.id == bindparam("number")
)


def find_by_name(connection: Connection, workspace: str, name: str) -> Experiment | None:
    values = {"workspace": workspace, "name": name}
    return _experiment(connection.execute(_NAMED, values).one_or_none())


def by_id(connection: Connection, workspace: str, number: int) -> Experiment | None:
    values = {"workspace": workspace, "number": number}
    return _experiment(connection.execute(_BY_ID, values).one_or_none())


def existing(connection: Connection, workspace: str, numbers: Collection[int]) -> set[int]:
    """Which of these numbers are experiments of the workspace, deleted or not."""
    rows = connection.execute(
        select(experiments.c.id).where(
            experiments.c.workspace == workspace, experiments.c.id.in_(numbers)
        )
    )
    return set(rows.scalars())


def list_in(connection: Connection, workspace: str) -> list[Experiment]:
    rows = connection.execute(
        select(experiments)
        .where(experiments.c.workspace == workspace)
        .order_by(experiments.c.id.desc())
    )
    return [Experiment(**row._mapping) for row in rows]


def add(
    connection: Connection,
    workspace: str,
    name: str,
    tags: dict[str, str],
    now: datetime,
    artifact_location: str = "",
) -> Experiment:
    result = connection.execute(
        insert(experiments).values(
            workspace=workspace,
            name=name,
            created_at=now,
            tags=tags,
            deleted=False,
            artifact_location=artifact_location,
        )
    )
    assert result.inserted_primary_key is not None
    number = result.inserted_primary_key[0]
    return Experiment(number, workspace, name, now, tags, artifact_location=artifact_location)


def drop_all(connection: Connection, workspace: str) -> None:
    """Of a workspace without jobs."""
    connection.execute(delete(experiments).where(experiments.c.workspace == workspace))


def change(connection: Connection, number: int, **values: Any) -> None:
    connection.execute(update(experiments).where(experiments.c.id == number).values(values))


def _experiment(row: Row[Any] | None) -> Experiment | None:
    return None if row is None else Experiment(**row._mapping)
