"""One round of one sweep.

Owns: the order of a round's steps, creating trials, the best trial, the sweep's beginning and end.
Leaves: trials that run or have ended to trial_ends.py, parameters to search/, who runs rounds to
keeper.py.
Always: a trial's row and its job are stored together, under a name and with parameters that follow
from the sweep and the trials before it: anyone who runs the round, and however often, a trial is
created once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from torchyard.base.db import Database
from torchyard.base.errors import DatabaseUnreachable, DiskFull, TorchyardError
from torchyard.jobs import actions as jobs
from torchyard.jobs.records.types import Job, JobError, Status
from torchyard.jobs.requests import parent_logs, parents, submission
from torchyard.jobs.services import FileServices, RecordServices, Services
from torchyard.sweeps.records import trial_store
from torchyard.sweeps.records.types import Outcome, Trial
from torchyard.sweeps.running import climbing, failures, trial_ends
from torchyard.sweeps.running.state import SweepState, load, spec_of
from torchyard.sweeps.search.search import Search, needed
from torchyard.sweeps.spec.trial_command import text
from torchyard.workspaces.types import Identity, TokenKind

LOG = "azureml-logs/hyperdrive.txt"
"""As Azure's clients look for it."""
TIMEOUT, CANCELED = "sweep_timeout", "sweep_ended"
BEST_CHILD = "best_child_run_id"
SCORE = "score"
HYPERPARAMETERS = "hyperparameters"


def run(services: Services, search: Search, state: SweepState) -> bool:
    """One round; False when the sweep has ended, or has to be loaded again."""
    if not _refresh(services.db, state) or state.job.status.ended:
        return False
    if state.job.status is Status.NOT_STARTED:
        _begin(services, state)
    with services.db.read() as connection:
        by_id = parents.by_id(connection, [trial.job_id for trial in state.live])
    if not trial_ends.read_metrics(services, state):
        return False
    trial_ends.stop_ended_by_policy(services, state, by_id)
    trial_ends.tell(services, state, by_id)
    _decide_end(services, state)
    if _is_ending(state):
        _cancel_trials(services, state, by_id)
    else:
        climbing.climb(services, state, by_id)
        if not _create_trials(services, search, state):
            climbing.end_paused(services, state, by_id)
    _note_best(services, state)
    over = _finish(services, state)
    _write_log(services, state)
    return not over


def _write_log(services: FileServices, state: SweepState) -> None:
    lines, state.log = state.log, []
    parent_logs.add(services, state.job, LOG, lines)


def _refresh(db: Database, state: SweepState) -> bool:
    """Read what others may have changed; False where that is more than the sweep itself."""
    with db.read() as connection:
        job = parents.by_id(connection, [state.job.id]).get(state.job.id)
        row = trial_store.sweep_of(connection, state.job.id)
        count = trial_store.count_trials(connection, state.job.id)
        live = {trial.number for trial in trial_store.live_trials(connection, state.job.id)}
    if job is None or row is None or count != len(state.trials) or live != state.live_numbers:
        return False
    if row.max_total_trials != state.row.max_total_trials:
        state.spec = spec_of(job, row)
    state.job, state.row = job, row
    return True


def _begin(services: RecordServices, state: SweepState) -> None:
    now = services.clock.now()
    with services.db.write() as connection:
        current = parents.by_id(connection, [state.job.id])[state.job.id]
        if current.status is not Status.NOT_STARTED:
            return
        state.job = parents.begin(connection, current, now)
        trial_store.change_sweep(connection, state.job.id, begun_at=now)
    state.row = replace(state.row, begun_at=now)
    services.signals.notify(jobs.job_key(state.job))
    spec = state.spec
    state.log.append(
        f"sweep {state.job.name} begins: {spec.limits.max_total_trials} trials, "
        f"{spec.limits.max_concurrent_trials} at once, {spec.sampling.algorithm}, "
        + ", ".join(f"{each.goal} {each.primary_metric}" for each in spec.objectives)
    )


def _is_ending(state: SweepState) -> bool:
    return bool(state.row.ends_as) or state.job.status is Status.CANCEL_REQUESTED


def _decide_end(services: RecordServices, state: SweepState) -> None:
    """Whether time is over, or too many trials failed."""
    if _is_ending(state):
        return
    begun_at, limit_s = state.row.begun_at, state.spec.limits.timeout_s
    recent = [each for each in state.trials if begun_at is None or each.created_at >= begun_at]
    error = failures.error(recent, state.spec.limits.max_failed_trials)
    if error is not None:
        _end_as(services.db, state, Status.FAILED, error)
    elif begun_at and limit_s and (services.clock.now() - begun_at).total_seconds() > limit_s:
        error = JobError(
            TIMEOUT,
            f"the sweep ran longer than its `limits.timeout`, {limit_s:g} s",
            "raise it, or let more trials run at once",
        )
        _end_as(services.db, state, Status.CANCELED, error)


def _end_as(db: Database, state: SweepState, status: Status, error: JobError) -> None:
    """Let the sweep end so, once its trials have ended."""
    with db.write() as connection:
        trial_store.change_sweep(connection, state.job.id, ends_as=status.value)
        parents.set_error(connection, state.job, error)
    state.row = replace(state.row, ends_as=status.value)
    state.job = replace(state.job, error=error)
    state.log.append(f"the sweep ends as {status.value}: {error.message}")


def _cancel_trials(services: Services, state: SweepState, by_id: Mapping[int, Job]) -> None:
    error = JobError(CANCELED, f"sweep `{state.job.name}` ends", "")
    for trial in state.live:
        job = by_id.get(trial.job_id)
        if job is not None and job.status is not Status.CANCEL_REQUESTED:
            ended = jobs.cancel(services, job.workspace, job.name, error)
            if ended.status.ended:
                trial_ends.tell(services, state, {**by_id, job.id: ended})


def _create_trials(services: Services, search: Search, state: SweepState) -> bool:
    """Whether there may be more trials than there are."""
    limits = state.spec.limits
    while len(state.trials) < limits.max_total_trials and not state.row.is_exhausted:
        active = state.active_numbers
        number = len(state.trials)
        if len(active) >= limits.max_concurrent_trials:
            return True
        if any(before in active for before in needed(state.spec, number)):
            return True
        parameters = search.suggest(
            state.spec,
            number,
            [state.known_by_number[each] for each in sorted(state.known_by_number)],
            key=str(state.job.id),
            earlier=state.earlier,
        )
        if parameters is None:
            _note_exhausted(services.db, state)
            return False
        try:
            created = _create(services, state, number, parameters)
        except (DatabaseUnreachable, DiskFull):
            raise
        except TorchyardError as error:
            reason = JobError(error.code, f"trial {number}: {error.message}", error.hint)
            _end_as(services.db, state, Status.FAILED, reason)
            return True
        if not created:
            return True
    return False


def _create(
    services: Services, state: SweepState, number: int, parameters: Mapping[str, Any]
) -> bool:
    """Store a trial and its job; False when there was one of that name."""
    document = state.spec.trial_document(number, parameters)
    # As Azure's clients read them.
    tags = {**(document.get("tags") or {}), HYPERPARAMETERS: json.dumps(parameters)}
    document["tags"] = tags
    owner = Identity(state.job.owner, TokenKind.PERSON)
    stored: list[Trial] = []

    def also(connection: Connection, job: Job) -> None:
        trial = Trial(number, job.name, parameters, job.created_at, job_id=job.id)
        trial_store.add_trial(connection, state.job.id, trial)
        stored.append(trial)

    job, is_new = submission.create_new(services, state.job.workspace, document, owner, also)
    if not is_new:
        return False
    state.put(stored[-1])
    shown = " ".join(f"{name}={text(value)}" for name, value in parameters.items())
    state.log.append(f"trial {job.name} is created: {shown}")
    return True


def _note_exhausted(db: Database, state: SweepState) -> None:
    with db.write() as connection:
        trial_store.change_sweep(connection, state.job.id, is_exhausted=True)
    state.row = replace(state.row, is_exhausted=True)
    state.log.append(f"the search space is exhausted after {len(state.trials)} trials")


def _note_best(services: RecordServices, state: SweepState) -> None:
    trial = state.best()
    if trial is None:
        return
    value = trial.values[0]
    properties = {BEST_CHILD: trial.name, SCORE: repr(value)}
    if all(state.job.properties.get(key) == text for key, text in properties.items()):
        return
    with services.db.write() as connection:
        state.job = parents.add_properties(connection, state.job, properties)
    services.signals.notify(jobs.job_key(state.job))
    stopped = ", which was stopped early" if trial.outcome is Outcome.STOPPED else ""
    state.log.append(f"best so far: trial {trial.name}{stopped}, {state.metric} {value:.6g}")


def _finish(services: FileServices, state: SweepState) -> bool:
    """Whether the sweep has ended now."""
    if state.live_numbers:
        return False
    limit = state.spec.limits.max_total_trials
    is_done = len(state.trials) >= limit or state.row.is_exhausted
    if not _is_ending(state) and not is_done:
        return False
    error = state.job.error
    if state.job.status is Status.CANCEL_REQUESTED:
        status = Status.CANCELED
    elif state.row.ends_as:
        status = Status(state.row.ends_as)
    else:
        error = (
            None
            if state.spec.limits.max_failed_trials is not None
            else failures.error_at_end(state.trials)
        )
        status = Status.COMPLETED if error is None else Status.FAILED
    counts: dict[Outcome, int] = dict.fromkeys(list(Outcome)[1:], 0)
    for trial in state.trials:
        counts[trial.outcome] += 1
    shown = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count)
    state.log.append(f"the sweep ends as {status.value}: {shown or 'no trials'}")
    best = state.best()
    if best is not None:
        state.log.append(f"its best trial is {best.name}: `yard job download -n {best.name}`")
    _write_log(services, state)  # before the end, which streams wait for
    with services.db.write() as connection:
        parents.end(connection, state.job, status, error, services.clock.now())
    services.signals.notify(jobs.job_key(state.job))
    return True


__all__ = ["load", "run"]
