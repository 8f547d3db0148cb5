"""The tables of sweeps and of their trials.

Owns: SQL, and the way between rows and `Trial`.
Leaves: the jobs of both to jobs/requests/parents.py; metrics to jobs/history/.
Always: a trial's row is added with its job's, in one transaction; what it came to is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    func,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.sweeps.records.types import Outcome, Trial

TYPE = "sweep"
"""`Job.type` of a sweep."""

sweeps = Table(
    "sweeps",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("max_total_trials", Integer, nullable=False),
    Column("begun_at", Instant),
    Column("is_exhausted", Boolean, nullable=False),
    Column("seed", BigInteger),
    Column("earlier", JSON, nullable=False),
    Column("ends_as", String(20), nullable=False),
)

trials = Table(
    "sweep_trials",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    # Without a foreign key: a trial may be deleted, and what it came to is still known.
    Column("trial_id", BigInteger, nullable=False, index=True),
    Column("name", String(256), nullable=False),
    Column("parameters", JSON, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("outcome", String(12), nullable=False),
    Column("metric_values", JSON, nullable=False),
    Column("constraint_values", JSON, nullable=False),
    Column("intervals", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("promotions", Integer, nullable=False),
    Column("is_paused", Boolean, nullable=False),
)


@dataclass(frozen=True)
class SweepRow:
    """What is kept of a sweep beside its job.

    `max_total_trials` may be raised. `begun_at` is when it began, or went on with more trials: its
    timeout counts from there. `is_exhausted` says that no further parameters exist. `seed` is the
    one that was drawn for it, None where its file has one. `earlier` is what was known, at
    submission, of the trials that it goes on from. `ends_as` is the status that it ends with once
    its trials have ended; empty while it goes on.
    """

    job_id: int
    max_total_trials: int
    begun_at: datetime | None = None
    is_exhausted: bool = False
    seed: int | None = None
    earlier: Sequence[Mapping[str, Any]] = ()
    ends_as: str = ""


def add_sweep(connection: Connection, row: SweepRow) -> None:
    connection.execute(insert(sweeps).values({**vars(row), "earlier": list(row.earlier)}))


def sweep_of(connection: Connection, job_id: int) -> SweepRow | None:
    """None for a job that is not a sweep."""
    row = connection.execute(select(sweeps).where(sweeps.c.job_id == job_id)).one_or_none()
    return None if row is None else SweepRow(**row._mapping)


def change_sweep(connection: Connection, job_id: int, **values: Any) -> None:
    connection.execute(update(sweeps).where(sweeps.c.job_id == job_id).values(values))


def add_trial(connection: Connection, sweep_id: int, trial: Trial) -> None:
    """
    Raises:
        IntegrityError: the sweep has a trial of that number.
    """
    connection.execute(
        insert(trials).values(
            job_id=sweep_id,
            number=trial.number,
            trial_id=trial.job_id,
            name=trial.name,
            parameters=dict(trial.parameters),
            created_at=trial.created_at,
            outcome=trial.outcome.value,
            metric_values=list(trial.values),
            constraint_values=list(trial.constraints),
            intervals=trial.intervals,
            reason=trial.reason,
            promotions=trial.promotions,
            is_paused=trial.is_paused,
        )
    )


def change_trial(connection: Connection, sweep_id: int, number: int, **values: Any) -> None:
    here = (trials.c.job_id == sweep_id, trials.c.number == number)
    connection.execute(update(trials).where(*here).values(values))


def trials_of(connection: Connection, sweep_id: int, first: int = 0) -> list[Trial]:
    """In the order of their numbers, from `first` on, without what their jobs say."""
    query = (
        select(trials)
        .where(trials.c.job_id == sweep_id, trials.c.number >= first)
        .order_by(trials.c.number)
    )
    return [_trial(row._mapping) for row in connection.execute(query)]


def live_trials(connection: Connection, sweep_id: int) -> list[Trial]:
    """As `trials_of`, those whose outcome is not known yet."""
    query = (
        select(trials)
        .where(trials.c.job_id == sweep_id, trials.c.outcome == Outcome.LIVE.value)
        .order_by(trials.c.number)
    )
    return [_trial(row._mapping) for row in connection.execute(query)]


def count_trials(connection: Connection, sweep_id: int) -> int:
    query = select(func.count()).where(trials.c.job_id == sweep_id)
    return int(connection.execute(query).scalar_one())


def _trial(row: Mapping[Any, Any]) -> Trial:
    return Trial(
        number=row["number"],
        name=row["name"],
        parameters=row["parameters"],
        created_at=row["created_at"],
        outcome=Outcome(row["outcome"]),
        values=tuple(row["metric_values"]),
        constraints=tuple(row["constraint_values"]),
        intervals=row["intervals"],
        reason=row["reason"],
        promotions=row["promotions"],
        is_paused=row["is_paused"],
        job_id=row["trial_id"],
    )
