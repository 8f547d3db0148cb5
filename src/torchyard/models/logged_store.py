"""The tables of logged models: the models, their metrics, the runs that use or made them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Row,
    String,
    Table,
    UniqueConstraint,
    and_,
    bindparam,
    delete,
    insert,
    or_,
    select,
    update,
)

from torchyard.base.db import Instant, insert_new, metadata
from torchyard.models.store import models
from torchyard.models.types import LoggedMetric, LoggedModel, RunModel

# Databases limit the number of parameters in one statement.
_IDS_PER_QUERY = 400

logged_models = Table(
    "logged_models",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("experiment_id", BigInteger, nullable=False, index=True),
    Column("name", String(500), nullable=False),
    Column("run", String(256), nullable=False),
    Column("folder", String(1024), nullable=False),
    Column("type", String(500), nullable=False),
    Column("status", String(32), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("params", JSON, nullable=False),
    Column("deleted", Boolean, nullable=False),
    UniqueConstraint("workspace", "folder"),
    Index(None, "workspace", "run"),
)

logged_model_metrics = Table(
    "logged_model_metrics",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("model_id", String(64), primary_key=True),
    Column("run", String(256), primary_key=True),
    Column("key", String(250), primary_key=True),
    Column("dataset_name", String(500), primary_key=True),
    Column("dataset_digest", String(128), primary_key=True),
    Column("timestamp", BigInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("value", Double),  # null is NaN, which SQLite does not keep
)

run_models = Table(
    "run_models",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("run", String(256), primary_key=True),
    Column("kind", String(8), primary_key=True),
    Column("model_id", String(64), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
)


def add(connection: Connection, model: LoggedModel) -> None:
    connection.execute(insert(logged_models).values(vars(model)))


def get(connection: Connection, workspace: str, model_id: str) -> LoggedModel | None:
    row = connection.execute(
        select(logged_models).where(
            logged_models.c.workspace == workspace, logged_models.c.id == model_id
        )
    ).one_or_none()
    return None if row is None else LoggedModel(**row._mapping)


def in_experiments(
    connection: Connection, workspace: str, experiment_ids: Collection[int]
) -> list[LoggedModel]:
    """Those that are not deleted, newest first."""
    rows = connection.execute(
        select(logged_models)
        .where(
            logged_models.c.workspace == workspace,
            logged_models.c.experiment_id.in_(experiment_ids),
            logged_models.c.deleted.is_(False),
        )
        .order_by(logged_models.c.created_at.desc(), logged_models.c.id.desc())
    )
    return [LoggedModel(**row._mapping) for row in rows]


def names_without_run(connection: Connection, workspace: str) -> list[str]:
    """The names of models that no run made and that are not deleted, sorted."""
    return list(
        connection.execute(
            select(logged_models.c.name)
            .where(
                logged_models.c.workspace == workspace,
                logged_models.c.run == "",
                logged_models.c.deleted.is_(False),
            )
            .order_by(logged_models.c.name)
        ).scalars()
    )


def in_folder(connection: Connection, workspace: str, folder: str) -> LoggedModel | None:
    row = connection.execute(
        select(logged_models).where(
            logged_models.c.workspace == workspace, logged_models.c.folder == folder
        )
    ).one_or_none()
    return None if row is None else LoggedModel(**row._mapping)


def folders_of(connection: Connection, workspace: str, run: str) -> list[str]:
    """Also those of deleted models."""
    return list(
        connection.execute(
            select(logged_models.c.folder).where(
                logged_models.c.workspace == workspace, logged_models.c.run == run
            )
        ).scalars()
    )


def change(connection: Connection, workspace: str, model_id: str, **values: Any) -> None:
    connection.execute(
        update(logged_models)
        .where(logged_models.c.workspace == workspace, logged_models.c.id == model_id)
        .values(values)
    )


def put_metrics(connection: Connection, workspace: str, points: Sequence[LoggedMetric]) -> None:
    """Store each point that is newer than the stored one."""
    rows = [
        {**vars(point), "workspace": workspace, "value": _stored(point.value)} for point in points
    ]
    if not rows:
        return
    insert_new(connection, logged_model_metrics, rows)
    table = logged_model_metrics.c
    same = [column == bindparam(f"the_{column.name}") for column in table if column.primary_key]
    newer = or_(
        table.timestamp < bindparam("the_timestamp"),
        and_(table.timestamp == bindparam("the_timestamp"), table.step <= bindparam("the_step")),
    )
    connection.execute(
        update(logged_model_metrics)
        .where(*same, newer)
        .values(
            timestamp=bindparam("the_timestamp"),
            step=bindparam("the_step"),
            value=bindparam("the_value"),
        ),
        [{f"the_{name}": value for name, value in row.items()} for row in rows],
    )


def metrics_of(
    connection: Connection, workspace: str, model_ids: Sequence[str]
) -> dict[str, list[LoggedMetric]]:
    """By model, oldest first."""
    metrics: dict[str, list[LoggedMetric]] = {model_id: [] for model_id in model_ids}
    table = logged_model_metrics.c
    for start in range(0, len(model_ids), _IDS_PER_QUERY):
        some = model_ids[start : start + _IDS_PER_QUERY]
        rows = connection.execute(
            select(logged_model_metrics)
            .where(table.workspace == workspace, table.model_id.in_(some))
            .order_by(table.timestamp, table.step, table.key)
        )
        for row in rows:
            metrics[row.model_id].append(_metric(row))
    return metrics


def add_run_models(
    connection: Connection, workspace: str, models_of_runs: Sequence[RunModel]
) -> None:
    """Add those that are not stored yet."""
    rows = [
        {**vars(run_model), "workspace": workspace} for run_model in dict.fromkeys(models_of_runs)
    ]
    insert_new(connection, run_models, rows)


def run_models_of(
    connection: Connection, workspace: str, runs: Sequence[str]
) -> dict[str, list[RunModel]]:
    """By run, in order of their steps; runs without any are left out."""
    by_run: dict[str, list[RunModel]] = {}
    table = run_models.c
    for start in range(0, len(runs), _IDS_PER_QUERY):
        some = runs[start : start + _IDS_PER_QUERY]
        rows = connection.execute(
            select(run_models)
            .where(table.workspace == workspace, table.run.in_(some))
            .order_by(table.run, table.kind, table.step, table.model_id)
        )
        for row in rows:
            of_run = by_run.setdefault(row.run, [])
            of_run.append(RunModel(row.run, row.kind, row.model_id, row.step))
    return by_run


def delete_of_run(connection: Connection, workspace: str, run: str) -> None:
    """Delete a run's metrics and uses of models, and its models that have no version."""
    registered = select(models.c.model_id).where(models.c.workspace == workspace)
    for table in (logged_model_metrics, run_models, logged_models):
        of_run = [table.c.workspace == workspace, table.c.run == run]
        if table is logged_models:
            of_run.append(table.c.id.not_in(registered))
        connection.execute(delete(table).where(*of_run))


def _metric(row: Row[Any]) -> LoggedMetric:
    values = dict(row._mapping)
    del values["workspace"]
    return LoggedMetric(**{**values, "value": float("nan") if row.value is None else row.value})


def _stored(value: float) -> float | None:
    return None if value != value else value
