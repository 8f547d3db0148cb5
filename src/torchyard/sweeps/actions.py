"""What people and protocols can do with sweeps.

Owns: checking and creating sweeps, their trials and the best of them, the table of rungs, more
trials, canceling.
Leaves: reading, listing, archiving and deleting to jobs/actions.py and jobs/cleanup/deletion.py,
which a sweep's row obeys as any job's; the rounds to running/keeper.py.
Always: a sweep is stored whole or not at all; its trial is checked and pinned once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.jobs import actions as jobs
from torchyard.jobs.history.history import History
from torchyard.jobs.records.types import Job, JobError, Status
from torchyard.jobs.requests import parents
from torchyard.jobs.services import RecordServices, Services
from torchyard.sweeps.records import trial_store
from torchyard.sweeps.records.trial_store import TYPE, SweepRow
from torchyard.sweeps.records.types import Outcome, Trial
from torchyard.sweeps.running import climbing, creation, news
from torchyard.sweeps.running.state import best_of, spec_of
from torchyard.sweeps.spec.early_termination import Asha, Hyperband
from torchyard.sweeps.spec.sweep_spec import SweepSpec
from torchyard.sweeps.stopping.rungs import RungResult, table
from torchyard.workspaces.types import Identity

__all__ = [
    "TYPE",
    "SweepJobs",
    "add_trials",
    "best",
    "best_of",
    "check",
    "create",
    "rungs",
    "spec",
    "trials",
]

_MOST_TRIALS = 1_000_000


def check(
    services: Services, workspace: str, document: Any, *, uploaded: bool = True
) -> tuple[str, ...]:
    """Check a sweep's file as far as possible without running it; return notices.

    Args:
        uploaded: False accepts `local:` where a folder is yet to be uploaded.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    return creation.check(services, workspace, document, uploaded).notices


def create(
    services: Services, workspace: str, document: Mapping[str, Any], identity: Identity
) -> tuple[Job, bool]:
    """Store a sweep, whose trials the keeper then creates; the job, and whether it is new.

    Raises:
        InvalidSpec: what is wrong, and where.
        Conflict: the name is taken by another job.
    """
    return creation.create(services, workspace, document, identity)


def spec(db: Database, sweep: Job) -> SweepSpec:
    """What was asked, with the sweep's name, its seed and as many trials as it may have by now.

    Raises:
        InvalidInput: the job is not a sweep.
    """
    return spec_of(sweep, _row(db, sweep))


def trials(services: RecordServices, sweep: Job) -> list[Trial]:
    """In the order of their numbers, with their jobs' states and their last metrics."""
    with services.db.read() as connection:
        rows = trial_store.trials_of(connection, sweep.id)
        by_id = parents.by_id(connection, [trial.job_id for trial in rows])
    metrics = services.history.data_of([trial.job_id for trial in rows])
    objectives = spec(services.db, sweep).objectives
    values = {
        trial.number: _live_value(
            services.history, trial, objectives[0].primary_metric, objectives[0].goal
        )
        for trial in rows
        if trial.outcome is Outcome.LIVE
    }
    return [
        _with_job(
            replace(trial, values=values.get(trial.number, trial.values)),
            by_id.get(trial.job_id),
            {metric.key: metric.value for metric in metrics[trial.job_id].metrics},
        )
        for trial in rows
    ]


def parameters(db: Database, sweep: Job) -> dict[str, Mapping[str, Any]]:
    """The parameters of each trial, by its name."""
    with db.read() as connection:
        return {
            trial.name: trial.parameters for trial in trial_store.trials_of(connection, sweep.id)
        }


def _live_value(history: History, trial: Trial, metric: str, goal: str) -> tuple[float, ...]:
    """The best value so far of a trial that runs."""
    extremes = history.extremes(trial.job_id, metric)
    return () if extremes is None else (extremes[0 if goal == "minimize" else 1],)


def _with_job(trial: Trial, job: Job | None, metrics: Mapping[str, float]) -> Trial:
    if job is None:
        return trial
    return replace(
        trial,
        status=job.status.value,
        started_at=job.started_at,
        ended_at=job.ended_at,
        duration_s=job.duration_s,
        metrics=metrics,
    )


def best(services: RecordServices, sweep: Job) -> Trial | None:
    """The trial with the best primary metric; None before one has logged it."""
    goal = spec(services.db, sweep).objective.goal
    return best_of(trials(services, sweep), goal)


def rungs(services: RecordServices, sweep: Job) -> list[RungResult]:
    """What became of the trials at the rungs of ASHA or Hyperband; empty with another policy."""
    sweep_spec = spec(services.db, sweep)
    policy = sweep_spec.early_termination
    if not isinstance(policy, Asha | Hyperband):
        return []
    with services.db.read() as connection:
        rows = trial_store.trials_of(connection, sweep.id)
    metric, last = sweep_spec.objective.primary_metric, policy.max_intervals
    values = {
        trial.number: [
            point.value for point in services.history.series(trial.job_id, metric, 0, last)
        ][: None if trial.outcome is Outcome.LIVE else trial.intervals]
        for trial in rows
    }
    return table(policy, sweep_spec.objective.goal, climbing.climbs_of(rows, values))


def add_trials(services: RecordServices, sweep: Job, max_total_trials: int) -> Job:
    """Let a sweep, also one that has ended, go on up to so many trials in all.

    Raises:
        Conflict: it has as many already, or is being canceled.
        InvalidInput: not a number that a sweep may have, or the job is not a sweep.
    """
    if not 0 < max_total_trials <= _MOST_TRIALS:
        raise InvalidInput(
            f"`max_total_trials` is {max_total_trials}",
            f"write a whole number from 1 to {_MOST_TRIALS:,}",
            at=("limits", "max_total_trials"),
        )
    _row(services.db, sweep)
    now = services.clock.now()
    with services.db.write() as connection:
        current = parents.by_id(connection, [sweep.id])[sweep.id]
        row = trial_store.sweep_of(connection, sweep.id)
        assert row is not None
        if current.status is Status.CANCEL_REQUESTED or (row.ends_as and not current.status.ended):
            raise Conflict(
                f"sweep `{sweep.name}` is ending",
                f"wait until it has ended: `yard job stream -n {sweep.name}`",
            )
        if max_total_trials <= max(row.max_total_trials, 0):
            raise Conflict(
                f"sweep `{sweep.name}` may have {row.max_total_trials} trials already",
                f"give a number above {row.max_total_trials}",
                at=("limits", "max_total_trials"),
            )
        values: dict[str, Any] = {"max_total_trials": max_total_trials, "is_exhausted": False}
        if current.status.ended:
            values |= {"ends_as": "", "begun_at": now}
            current = parents.reopen(connection, current, now)
        trial_store.change_sweep(connection, sweep.id, **values)
        parents.tell(connection, current, f"it may have {max_total_trials} trials now", now)
    services.signals.notify(jobs.job_key(sweep))
    services.signals.notify(news.SWEEPS)
    return current


def _row(db: Database, sweep: Job) -> SweepRow:
    with db.read() as connection:
        row = trial_store.sweep_of(connection, sweep.id)
    if row is None:
        raise InvalidInput(
            f"job `{sweep.name}` is not a sweep",
            "`yard job create` makes one of a file with `type: sweep`",
        )
    return row


class SweepJobs:
    """The type `sweep`, as jobs/ calls it; see `JobType`."""

    def check(
        self, services: Services, workspace: str, document: Mapping[str, Any], uploaded: bool
    ) -> tuple[str, ...]:
        return check(services, workspace, document, uploaded=uploaded)

    def create(
        self, services: Services, workspace: str, document: Mapping[str, Any], identity: Identity
    ) -> tuple[Job, bool]:
        return create(services, workspace, document, identity)

    def cancel(self, services: Services, job: Job, why: JobError | None, kill: bool) -> Job:
        """The keeper cancels the trials; with `kill` they are ended here, at once."""
        with services.db.write() as connection:
            parents.request_cancel(connection, job, why, services.clock.now())
            live = trial_store.live_trials(connection, job.id)
        services.signals.notify(jobs.job_key(job))
        services.signals.notify(news.SWEEPS)
        for trial in live if kill else ():
            if jobs.find_by_name(services.db, job.workspace, trial.name) is not None:
                jobs.cancel(services, job.workspace, trial.name, why, kill=True)
        return jobs.get(services, job.workspace, job.name)

    def needs(self, services: RecordServices, workspace: str) -> dict[str, str]:
        return {}


JOBS = SweepJobs()
