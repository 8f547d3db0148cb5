"""What trials come to: reading their metrics, ending those that go nowhere, telling the rest.

Owns: the primary metric as it arrives, stopping a trial, the outcome of one that has ended.
Leaves: a policy's decision to stopping/, when too many failed to failures.py.
Always: a trial's job is read before its metrics, so that what an ended one logged is all there;
its outcome is written once; why it is stopped is written before it is stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchyard.base.db import Database
from torchyard.base.errors import nearest
from torchyard.jobs import actions as jobs
from torchyard.jobs.history.history import History
from torchyard.jobs.records.types import Job, JobError, Status
from torchyard.jobs.requests import parents
from torchyard.jobs.services import RecordServices, Services
from torchyard.shared.plurals import plural
from torchyard.sweeps.records import trial_store
from torchyard.sweeps.records.types import Outcome, Trial
from torchyard.sweeps.running.state import Series, SweepState
from torchyard.sweeps.spec import early_termination

STOPPED_EARLY = "stopped_early"
_MOST_NAMES = 10


def read_metrics(services: RecordServices, state: SweepState) -> bool:
    """Feed new values to the policy, and stop whom it ends; False to read everything again."""
    live = state.live
    counts = services.history.counts([trial.job_id for trial in live], state.metric)
    for trial in live:
        before = state.series.get(trial.number, Series()).count
        count = counts.get(trial.job_id, 0)
        if trial.reason:
            count = min(count, trial.intervals)
        if count < before:
            return False  # it was resumed from a checkpoint, and logs again what came after that
        if count == before:
            continue
        points = services.history.series(trial.job_id, state.metric, before)
        reason = state.feed(trial.number, [point.value for point in points[: count - before]])
        if reason and not trial.reason:
            note_reason(services.db, state, trial, reason)
    return True


def stop_ended_by_policy(services: Services, state: SweepState, by_id: Mapping[int, Job]) -> None:
    """Cancel those trials that a reason was noted for; also after a server was killed between."""
    for trial in state.live:
        job = by_id.get(trial.job_id)
        if trial.reason and job is not None and not job.status.ended:
            error = JobError(
                STOPPED_EARLY, trial.reason, f"see the log of sweep `{state.job.name}`"
            )
            jobs.cancel(services, job.workspace, job.name, error)


def note_reason(db: Database, state: SweepState, trial: Trial, reason: str) -> None:
    """Write down why a trial is to be stopped, and after how many values."""
    intervals = state.series[trial.number].count
    with db.write() as connection:
        trial_store.change_trial(
            connection, state.job.id, trial.number, reason=reason, intervals=intervals
        )
    state.put(replace(trial, reason=reason, intervals=intervals))
    state.log.append(f"trial {trial.name} is stopped: {reason}")


def tell(services: RecordServices, state: SweepState, by_id: Mapping[int, Job]) -> None:
    """Write down what the trials came to that have ended."""
    ended_trials = []
    for trial in state.live:
        job = by_id.get(trial.job_id)
        if job is None or job.status.ended:
            ended_trials.append(_with_outcome(services.history, state, trial, job))
    if not ended_trials:
        return
    warnings = [
        text
        for text in (
            _missing(services.history, state, ended_trials),
            _idle_policy(state, ended_trials),
        )
        if text
    ]
    with services.db.write() as connection:
        for trial in ended_trials:
            trial_store.change_trial(
                connection,
                state.job.id,
                trial.number,
                outcome=trial.outcome.value,
                metric_values=list(trial.values),
                constraint_values=list(trial.constraints),
                intervals=trial.intervals,
                reason=trial.reason,
            )
        for text in warnings:
            parents.tell(connection, state.job, text, services.clock.now())
    for trial in ended_trials:
        state.put(trial)
        state.scores.finish(trial.number)
        state.log.append(_line(state, trial))
    state.log.extend(warnings)


def _with_outcome(history: History, state: SweepState, trial: Trial, job: Job | None) -> Trial:
    """The trial with what it came to."""
    series = state.series.get(trial.number, Series())
    values = _values(history, state, trial, series)
    ended = replace(
        trial,
        values=values,
        constraints=_constraints(history, state, trial),
        intervals=series.count,
    )
    if job is None:
        return replace(ended, outcome=Outcome.CANCELED, reason="its job was deleted")
    if job.status is Status.CANCELED:
        return replace(ended, outcome=Outcome.STOPPED if trial.reason else Outcome.CANCELED)
    if job.status is Status.FAILED:
        reason = job.error.message if job.error else "it failed"
        return replace(ended, outcome=Outcome.FAILED, reason=reason)
    reason = "" if values else _lack(state, history.keys(job.id))
    return replace(ended, outcome=Outcome.COMPLETED, reason=reason)


def _values(history: History, state: SweepState, trial: Trial, series: Series) -> tuple[float, ...]:
    """Of the only objective the best value, the last of a trial that was stopped; of several the
    last ones. Empty where one is missing.
    """
    if len(state.spec.objectives) == 1:
        value = series.last if trial.reason else series.best
        return () if value is None else (value,)
    names = [objective.primary_metric for objective in state.spec.objectives]
    return _latest(history, trial, names)


def _constraints(history: History, state: SweepState, trial: Trial) -> tuple[float, ...]:
    names = state.spec.sampling.constraints
    return _latest(history, trial, names) if names else ()


def _latest(history: History, trial: Trial, names: Sequence[str]) -> tuple[float, ...]:
    latest = {point.key: point.value for point in history.latest(trial.job_id)}
    values = [latest[name] for name in names if name in latest]
    finite = len(values) == len(names) and all(math.isfinite(value) for value in values)
    return tuple(values) if finite else ()


def _absent(state: SweepState, logged: Sequence[str]) -> str:
    names = (objective.primary_metric for objective in state.spec.objectives)
    return next((name for name in names if name not in logged), "")


def _lack(state: SweepState, logged: Sequence[str]) -> str:
    """Why a trial that completed has no value for every objective."""
    absent = _absent(state, logged)
    if not absent:
        names = (f"`{objective.primary_metric}`" for objective in state.spec.objectives)
        return f"it logged no number as {' or '.join(names)}"
    return f"it logged no value of `{absent}`" + (
        f"; it logged {_listed(logged)}" if logged else ""
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMES])


def _missing(history: History, state: SweepState, ended_trials: Sequence[Trial]) -> str:
    """What is said once, of the first trial that completed without a value."""
    if any(_lacks_value(trial) for trial in state.trials):
        return ""
    first = next((trial for trial in ended_trials if _lacks_value(trial)), None)
    if first is None:
        return ""
    logged = history.keys(first.job_id)
    absent = _absent(state, logged)
    if not absent:
        return f"trial `{first.name}` ended: {first.reason}"
    message = f"trial `{first.name}` ended and logged no `{absent}`"
    if not logged:
        call = f'mlflow.log_metric("{absent}", value)'
        return f"{message}; it logged no metric at all: its script does by `{call}`"
    guess = nearest(absent, logged)
    return f"{message}; it logged {_listed(logged)}" + (
        f": did you mean `{guess}`?" if guess else ""
    )


def _idle_policy(state: SweepState, ended_trials: Sequence[Trial]) -> str:
    """What is said once, of the first trial that completed before the policy could decide."""
    policy = state.spec.early_termination
    if policy is None or any(_is_measured(trial) for trial in state.trials):
        return ""
    first = next((trial for trial in ended_trials if _is_measured(trial)), None)
    interval, setting = early_termination.first_decision(policy)
    if first is None or first.intervals >= interval:
        return ""
    kind = early_termination.type_of(policy)
    counted = f"{first.intervals} {plural('value', first.intervals)} of `{state.metric}`"
    return (
        f"trial `{first.name}` ended after {counted}, and `{kind}` decides from interval {interval}"
        f" on: it stops no such trial; lower `{setting}`, or log the metric more often"
    )


def _is_measured(trial: Trial) -> bool:
    return trial.outcome is Outcome.COMPLETED and bool(trial.values)


def _lacks_value(trial: Trial) -> bool:
    return trial.outcome is Outcome.COMPLETED and not trial.values


def _line(state: SweepState, trial: Trial) -> str:
    text = f"trial {trial.name} ended: {trial.outcome.value}"
    if trial.values:
        names = (objective.primary_metric for objective in state.spec.objectives)
        pairs = zip(names, trial.values, strict=False)
        text += ", " + ", ".join(f"{name} {value:.6g}" for name, value in pairs)
    return f"{text}; {trial.reason}" if trial.reason else text
