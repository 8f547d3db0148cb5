"""What the keeper has in memory of one sweep.

Owns: the sweep's spec, its trials as they were told, the primary metric of each.
Leaves: what follows from it to rounds.py.
Always: everything here can be read again from the database; a trial that was told is never read
twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchyard.base.documents import secret_variables
from torchyard.jobs.history.history import History
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import parents
from torchyard.jobs.services import RecordServices
from torchyard.shared.masking import Masker
from torchyard.sweeps.records import known_trials, trial_store
from torchyard.sweeps.records.trial_store import SweepRow
from torchyard.sweeps.records.types import Outcome, Trial
from torchyard.sweeps.search.search import KnownTrial
from torchyard.sweeps.spec import sweep_spec
from torchyard.sweeps.spec.search_space import Value
from torchyard.sweeps.spec.sweep_spec import SweepSpec
from torchyard.sweeps.stopping.stopping import Scores

# Of the trials, one in so many is a known good point of an earlier sweep, at the most.
_SHARE_OF_POINTS = 4


@dataclass
class Series:
    """The primary metric of one trial, as far as it was read."""

    count: int = 0
    values: list[float] = field(default_factory=list)
    best: float | None = None
    last: float | None = None


@dataclass
class SweepState:
    """One sweep. `log` is what is still to be written to its log."""

    job: Job
    row: SweepRow
    spec: SweepSpec
    masker: Masker
    earlier: tuple[KnownTrial, ...]
    scores: Scores
    trials: list[Trial] = field(default_factory=list)
    series: dict[int, Series] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    @property
    def live(self) -> list[Trial]:
        return [self.trials[number] for number in sorted(self.live_numbers)]

    @property
    def active_numbers(self) -> set[int]:
        """Those that are live and don't wait at a rung."""
        return {each for each in self.live_numbers if not self.trials[each].is_paused}

    live_numbers: set[int] = field(default_factory=set)
    known_by_number: dict[int, KnownTrial] = field(default_factory=dict)

    def put(self, trial: Trial) -> None:
        """Note a trial as it is now."""
        if trial.number == len(self.trials):
            self.trials.append(trial)
        else:
            self.trials[trial.number] = trial
        self.known_by_number[trial.number] = known_trials.one(trial)
        if trial.outcome is Outcome.LIVE:
            self.live_numbers.add(trial.number)
        else:
            self.live_numbers.discard(trial.number)

    def feed(self, number: int, values: Sequence[float]) -> str | None:
        """Note next values of the primary metric, up to one that ends the trial, and its reason."""
        series = self.series.setdefault(number, Series())
        for value in values:
            series.count += 1
            series.values.append(value)
            if math.isfinite(value):
                series.last = value
                if series.best is None or self.is_better(value, series.best):
                    series.best = value
            if reason := self.scores.add(number, value):
                return reason
        return None

    def is_better(self, value: float, than: float) -> bool:
        return value < than if self.spec.objective.goal == "minimize" else value > than

    @property
    def metric(self) -> str:
        return self.spec.objective.primary_metric

    def best(self) -> Trial | None:
        return best_of(map(self._valued, self.trials), self.spec.objective.goal)

    def _valued(self, trial: Trial) -> Trial:
        """A trial that goes on with its best value so far."""
        value = self.series.get(trial.number, Series()).best
        if trial.outcome is not Outcome.LIVE or value is None:
            return trial
        return replace(trial, values=(value,))


def best_of(trials: Iterable[Trial], goal: str) -> Trial | None:
    """The trial with the best value of the first objective: of those that were stopped only where
    no other has one; None before one has logged it.
    """
    valued = [trial for trial in trials if trial.values]
    whole = [each for each in valued if each.outcome in (Outcome.LIVE, Outcome.COMPLETED)]
    eligible = whole or [each for each in valued if each.outcome is Outcome.STOPPED]
    sign = 1 if goal == "minimize" else -1
    return min(eligible, key=lambda trial: (sign * trial.values[0], trial.number), default=None)


def load(services: RecordServices, sweep_id: int) -> SweepState | None:
    """Everything of a sweep from the database; None if it was deleted."""
    with services.db.read() as connection:
        job = parents.by_id(connection, [sweep_id]).get(sweep_id)
        row = trial_store.sweep_of(connection, sweep_id)
        trials = trial_store.trials_of(connection, sweep_id)
    if job is None or row is None:
        return None
    spec = spec_of(job, row)
    state = SweepState(
        job=job,
        row=row,
        spec=spec,
        masker=secret_variables.masker(job.document),
        earlier=tuple(known_trials.from_json(body) for body in row.earlier),
        scores=Scores(spec.early_termination, spec.objective.goal),
    )
    for trial in trials:
        state.put(trial)
    _load_series(services.history, state)
    return state


def spec_of(job: Job, row: SweepRow) -> SweepSpec:
    """The sweep's spec, with its name, its seed and as many trials as it may have by now."""
    document: dict[str, Any] = {**job.document, "name": job.name}
    spec = sweep_spec.read(document)
    if row.seed is not None:
        spec = spec.with_seed(row.seed)
    if isinstance(spec.warm_start, str) and not spec.sampling.is_adaptive:
        # Before more trials are added: what is run first must stay the same.
        maximum = max(1, spec.limits.max_total_trials // _SHARE_OF_POINTS)
        spec = spec.with_warm_start(_best_points(spec, row)[:maximum])
    limits = replace(spec.limits, max_total_trials=row.max_total_trials)
    return replace(spec, limits=limits, experiment_name=job.experiment_name)


def _best_points(spec: SweepSpec, row: SweepRow) -> list[Mapping[str, Value]]:
    """The parameters of the earlier sweep's trials, the best first, each once."""
    sign = -1.0 if spec.objective.goal == "maximize" else 1.0
    done = [each for each in map(known_trials.from_json, row.earlier) if each.state == "completed"]
    ranked = sorted(done, key=lambda trial: (sign * trial.values[0], trial.number))
    points: list[Mapping[str, Value]] = []
    for trial in ranked:
        if trial.parameters not in points:
            points.append(trial.parameters)
    return points


def _load_series(history: History, state: SweepState) -> None:
    """Read the metrics of all trials again: a policy compares with those that have ended, too."""
    if state.spec.early_termination is None:
        return
    for trial in state.trials:
        if trial.outcome is Outcome.LIVE:
            continue
        points = history.series(trial.job_id, state.metric)
        # What it logged after it was stopped does not count; nothing is decided once more.
        for point in points[: trial.intervals]:
            state.feed(trial.number, [point.value])
        state.scores.finish(trial.number)
