"""ASHA and Hyperband: trials pause at rungs, and the best go on from their checkpoints.

Owns: pausing trials, promoting them, ending those that stay behind.
Leaves: rungs and who is promoted to stopping/rungs.py, a paused job to jobs/scheduling/pausing.py.
Always: a paused trial holds no nodes and takes no place among those that run at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from torchyard.jobs import actions as jobs
from torchyard.jobs.records.types import Job, JobError
from torchyard.jobs.scheduling import pausing
from torchyard.jobs.services import Services
from torchyard.sweeps.records import trial_store
from torchyard.sweeps.records.types import Outcome, Trial
from torchyard.sweeps.running.state import Series, SweepState
from torchyard.sweeps.running.trial_ends import STOPPED_EARLY, note_reason
from torchyard.sweeps.spec.early_termination import Asha, Hyperband
from torchyard.sweeps.stopping import rungs
from torchyard.sweeps.stopping.rungs import Climb


def climb(services: Services, state: SweepState, by_id: Mapping[int, Job]) -> None:
    """Pause those that are at a rung, and promote those that may go on."""
    policy = state.spec.early_termination
    if not isinstance(policy, Asha | Hyperband):
        return
    for trial in state.live:
        job = by_id.get(trial.job_id)
        if job is None or job.status.ended:
            continue
        rung = rungs.next_rung(policy, trial.number, trial.promotions)
        reason = f"it waits at interval {rung} of sweep `{state.job.name}`"
        count = state.series.get(trial.number, Series()).count
        if trial.is_paused:
            pausing.stop(services, job, reason)
        elif rung is not None and count >= rung:
            _change(services, state, trial, job, reason)
            state.log.append(f"trial {trial.name} is paused at interval {rung}")
    climbs = climbs_of(state.trials, _values_of(state))
    for number in rungs.promotable(policy, state.spec.objective.goal, climbs):
        trial = state.trials[number]
        job = by_id.get(trial.job_id)
        if len(state.active_numbers) >= state.spec.limits.max_concurrent_trials:
            return
        if trial.is_paused and trial.outcome is Outcome.LIVE and job is not None:
            _change(services, state, trial, job, "")
            state.log.append(f"trial {trial.name} is promoted and goes on")


def end_paused(services: Services, state: SweepState, by_id: Mapping[int, Job]) -> None:
    """End those that wait when nothing runs any more that could promote them."""
    policy = state.spec.early_termination
    if not isinstance(policy, Asha | Hyperband) or state.active_numbers:
        return
    climbs = climbs_of(state.trials, _values_of(state))
    for trial in state.live:
        job = by_id.get(trial.job_id)
        if job is None or job.status.ended:
            continue
        reason = rungs.reason(policy, state.spec.objective.goal, trial.number, climbs)
        note_reason(services.db, state, trial, reason)
        hint = f"see the log of sweep `{state.job.name}`"
        jobs.cancel(services, job.workspace, job.name, JobError(STOPPED_EARLY, reason, hint))


def climbs_of(trials: Sequence[Trial], values: Mapping[int, Sequence[float]]) -> dict[int, Climb]:
    """How far each trial got, by its number.

    Args:
        values: of the primary metric, by the trial's number; without those that logged none.
    """
    return {
        trial.number: Climb(
            values.get(trial.number, ()),
            trial.promotions,
            trial.outcome is not Outcome.LIVE,
            trial.outcome is Outcome.STOPPED,
        )
        for trial in trials
    }


def _change(services: Services, state: SweepState, trial: Trial, job: Job, pause_for: str) -> None:
    """Pause a trial for a reason, or promote it without one."""
    promotions = trial.promotions if pause_for else trial.promotions + 1
    values = {"is_paused": bool(pause_for), "promotions": promotions}

    def also(connection: Connection) -> None:
        trial_store.change_trial(connection, state.job.id, trial.number, **values)

    if pause_for:
        pausing.pause(services, job, pause_for, also)
    else:
        pausing.go_on(services, job, also)
    state.put(replace(trial, is_paused=bool(pause_for), promotions=promotions))


def _values_of(state: SweepState) -> dict[int, list[float]]:
    return {number: series.values for number, series in state.series.items()}
