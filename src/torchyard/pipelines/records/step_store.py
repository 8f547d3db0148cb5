"""The tables of pipelines and of their steps.

Owns: SQL, and the way between rows and `StepRow`.
Leaves: the jobs of both to jobs/requests/parents.py.
Always: a step's job is noted in the transaction that stores that job; what a step came to is
written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Integer,
    String,
    Table,
    Text,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.base.documents import secret_variables
from torchyard.jobs.records import adoptions
from torchyard.pipelines.spec.plan import Made, Taken

TYPE = "pipeline"
"""`Job.type` of a pipeline."""


class Outcome(str, Enum):
    """What became of a step."""

    WAITING = ""
    LIVE = "live"  # its job is
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    SKIPPED = "skipped"  # what it takes was not made

    @property
    def is_over(self) -> bool:
        return self not in (Outcome.WAITING, Outcome.LIVE)


pipelines = Table(
    "pipelines",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("outputs", JSON, nullable=False),
    Column("ends_as", String(20), nullable=False),
)

steps = Table(
    "pipeline_steps",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", String(512), nullable=False),
    Column("document", secret_variables.sealed("step `{name}` of a pipeline"), nullable=False),
    Column("takes", JSON, nullable=False),
    Column("component", String(512), nullable=False),
    Column("is_deterministic", Boolean, nullable=False),
    Column("outcome", String(12), nullable=False),
    Column("reason", Text, nullable=False),
    Column("ended_at", Instant),
    # Without a foreign key: the job of a step may be deleted, and what it came to is still known.
    Column("child_id", BigInteger, index=True),
    Column("child_name", String(256), nullable=False),
    Column("key", String(64), nullable=False, index=True),
    Column("recipe", JSON),
    Column("reused_from", String(256), nullable=False),
)


@dataclass(frozen=True)
class PipelineRow:
    """What is kept of a pipeline beside its job: which outputs of steps its outputs are, and the
    status that it ends with once its steps have ended, empty while it goes on.
    """

    job_id: int
    outputs: Mapping[str, Made]
    ends_as: str = ""


@dataclass(frozen=True)
class StepRow:
    """One step, without its document and its recipe. `child_name` is the job that made its outputs,
    empty before there is one; `reused_from` the pipeline whose step that was, empty for its own.
    `key` is that of its recipe, empty before its inputs are known.
    """

    number: int
    name: str
    takes: Mapping[str, Taken] = field(default_factory=dict)
    component: str = ""
    is_deterministic: bool = True
    outcome: Outcome = Outcome.WAITING
    reason: str = ""
    ended_at: datetime | None = None
    child_id: int | None = None
    child_name: str = ""
    key: str = ""
    reused_from: str = ""


_SHOWN = [column for column in steps.c if column.name not in ("job_id", "document", "recipe")]


def add(
    connection: Connection,
    row: PipelineRow,
    rows: Sequence[StepRow],
    documents: Sequence[Mapping[str, Any]],
) -> None:
    """Add a pipeline with its steps; `documents` are the steps' in the order of `rows`."""
    outputs = {name: vars(made) for name, made in row.outputs.items()}
    connection.execute(
        insert(pipelines).values(job_id=row.job_id, outputs=outputs, ends_as=row.ends_as)
    )
    values = [
        {
            **vars(step),
            "job_id": row.job_id,
            "takes": {name: vars(taken) for name, taken in step.takes.items()},
            "outcome": step.outcome.value,
            "document": dict(document),
        }
        for step, document in zip(rows, documents, strict=True)
    ]
    connection.execute(insert(steps), values)
    for step in rows:
        _adopt(connection, row.job_id, step)


def pipeline_of(connection: Connection, job_id: int) -> PipelineRow | None:
    """None for a job that is not a pipeline."""
    row = connection.execute(select(pipelines).where(pipelines.c.job_id == job_id)).one_or_none()
    if row is None:
        return None
    outputs = {name: Made(**made) for name, made in row.outputs.items()}
    return PipelineRow(row.job_id, outputs, row.ends_as)


def end_as(connection: Connection, job_id: int, status: str) -> None:
    """Note the status that it ends with once its steps have ended."""
    change = update(pipelines).where(pipelines.c.job_id == job_id).values(ends_as=status)
    connection.execute(change)


def steps_of(connection: Connection, job_id: int) -> list[StepRow]:
    """In the order in which they can run."""
    query = select(*_SHOWN).where(steps.c.job_id == job_id).order_by(steps.c.number)
    return [_step(row._mapping) for row in connection.execute(query)]


def document_of(connection: Connection, job_id: int, number: int) -> dict[str, Any]:
    """The job file of a step, without its name and what other steps make."""
    query = select(steps.c.document).where(steps.c.job_id == job_id, steps.c.number == number)
    return dict(connection.execute(query).scalar_one())


def start(connection: Connection, job_id: int, step: StepRow) -> None:
    """Note the job of a step."""
    here = (steps.c.job_id == job_id, steps.c.number == step.number)
    connection.execute(
        update(steps)
        .where(*here)
        .values(outcome=step.outcome.value, child_id=step.child_id, child_name=step.child_name)
    )


def end(
    connection: Connection,
    job_id: int,
    numbers: Sequence[int],
    outcome: Outcome,
    reason: str,
    now: datetime,
) -> None:
    """Note what some steps came to."""
    here = (steps.c.job_id == job_id, steps.c.number.in_(numbers))
    values = {"outcome": outcome.value, "reason": reason, "ended_at": now}
    connection.execute(update(steps).where(*here).values(values))


def _step(row: Mapping[Any, Any]) -> StepRow:
    takes = {name: Taken(**taken) for name, taken in row["takes"].items()}
    return StepRow(**{**row, "takes": takes, "outcome": Outcome(row["outcome"])})


def know(connection: Connection, job_id: int, number: int, key: str, recipe: Any) -> None:
    """Note what a step is made of."""
    here = (steps.c.job_id == job_id, steps.c.number == number)
    connection.execute(update(steps).where(*here).values(key=key, recipe=recipe))


def reuse(connection: Connection, job_id: int, step: StepRow, now: datetime) -> None:
    """Note that a step is one that has run before; its job is one of the pipeline's, too."""
    here = (steps.c.job_id == job_id, steps.c.number == step.number)
    values = {
        "outcome": step.outcome.value,
        "child_id": step.child_id,
        "child_name": step.child_name,
        "reused_from": step.reused_from,
        "ended_at": now,
    }
    connection.execute(update(steps).where(*here).values(values))
    _adopt(connection, job_id, step)


def _adopt(connection: Connection, job_id: int, step: StepRow) -> None:
    if step.reused_from and step.child_id is not None:
        adoptions.adopt(connection, job_id, step.child_id)


def recipe_of(connection: Connection, job_id: int, number: int) -> Any:
    """None before its inputs are known."""
    query = select(steps.c.recipe).where(steps.c.job_id == job_id, steps.c.number == number)
    return connection.execute(query).scalar_one_or_none()


def completed_with(connection: Connection, key: str, limit: int = 50) -> list[tuple[int, StepRow]]:
    """Steps with that key that ran themselves and completed, newest first, each with the id of its
    pipeline's job.
    """
    query = (
        select(steps.c.job_id, *_SHOWN)
        .where(
            steps.c.key == key,
            steps.c.outcome == Outcome.COMPLETED.value,
            steps.c.is_deterministic,
            steps.c.reused_from == "",
        )
        .order_by(steps.c.ended_at.desc())
        .limit(limit)
    )
    return [_with_pipeline(row._mapping) for row in connection.execute(query)]


def earlier_named(
    connection: Connection, pipelines_before: Sequence[int], name: str
) -> list[tuple[int, StepRow]]:
    """Steps of that name in these pipelines whose inputs were known, newest first."""
    query = (
        select(steps.c.job_id, *_SHOWN)
        .where(steps.c.job_id.in_(pipelines_before), steps.c.name == name, steps.c.key != "")
        .order_by(steps.c.job_id.desc())
    )
    return [_with_pipeline(row._mapping) for row in connection.execute(query)]


def makers(connection: Connection) -> list[tuple[int, StepRow]]:
    """Steps that have a job which ended, each with the id of its pipeline's."""
    query = select(steps.c.job_id, *_SHOWN).where(steps.c.outcome == Outcome.COMPLETED.value)
    return [_with_pipeline(row._mapping) for row in connection.execute(query)]


def _with_pipeline(row: Mapping[Any, Any]) -> tuple[int, StepRow]:
    values = dict(row)
    return values.pop("job_id"), _step(values)
