"""Decide whether a trial goes on, each time it logs the primary metric.

Owns: `Scores`, the metric of all trials by interval; Azure's policies on it.
Leaves: ASHA's and Hyperband's rungs to rungs.py; ending trials to running/.
Always: trials are compared at the same interval, the number of values that each has logged; one
that is no finite number is worse than any that is.

Source: Microsoft, Hyperparameter tuning a model (v2), "Early termination"; the class pages of
azureml.train.hyperdrive's policies.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from torchyard.sweeps.spec.early_termination import (
    Bandit,
    MedianStopping,
    Policy,
    TruncationSelection,
)


@dataclass
class _Progress:
    """What a trial has logged; scores are such that more is better."""

    intervals: int = 0
    best: float = -math.inf
    total: float = 0.0
    has_ended: bool = False
    scores: dict[int, float] = field(default_factory=dict)
    """By interval, where those of trials that have ended don't count."""


class Scores:
    """The primary metric of a sweep's trials, value by value; rebuilt by adding them again.

    A value costs the logarithm of the number of trials, and one list move.
    """

    def __init__(self, policy: Policy | None, goal: str) -> None:
        """Args: goal: `minimize` or `maximize`."""
        self._policy = policy
        self._sign = 1.0 if goal == "maximize" else -1.0
        self._trials: dict[int, _Progress] = {}
        # By interval: what each trial that got there is compared by, ascending.
        self._sorted: dict[int, list[float]] = {}

    def add(self, number: int, value: float) -> str | None:
        """Note the next value of trial `number`; the reason when it is to be stopped now."""
        trial = self._trials.setdefault(number, _Progress())
        trial.intervals += 1
        interval = trial.intervals
        score = self._sign * value if math.isfinite(value) else -math.inf
        trial.best = max(trial.best, score)
        trial.total += score
        policy = self._policy
        if not isinstance(policy, Bandit | MedianStopping | TruncationSelection):
            return None
        if interval % policy.evaluation_interval:
            return None
        compared = {
            Bandit: trial.best,
            MedianStopping: trial.total / interval,
            TruncationSelection: score,
        }[type(policy)]
        if isinstance(policy, TruncationSelection) and policy.exclude_finished_jobs:
            trial.scores[interval] = compared
        insort(self._sorted.setdefault(interval, []), compared)
        if interval < policy.delay_evaluation:
            return None
        if isinstance(policy, Bandit):
            return self._outside_slack(policy, trial)
        if isinstance(policy, MedianStopping):
            return self._below_median(trial)
        return self._truncated(policy, trial, score)

    def finish(self, number: int) -> None:
        """Note that trial `number` has ended, stopped or not."""
        trial = self._trials.setdefault(number, _Progress())
        if trial.has_ended:
            return
        trial.has_ended = True
        for interval, score in trial.scores.items():
            scores = self._sorted[interval]
            del scores[bisect_left(scores, score)]

    def _outside_slack(self, policy: Bandit, trial: _Progress) -> str | None:
        best = self._sorted[trial.intervals][-1]
        if policy.slack_amount is not None:
            allowed = best - policy.slack_amount
            slack = f"slack_amount {policy.slack_amount:g}"
        else:
            assert policy.slack_factor is not None
            # Microsoft's rule is best / (1 + slack) where more is better and values are above 0;
            # elsewhere what allows as much.
            ratio = 1 + policy.slack_factor
            allowed = min(best / ratio, best * ratio)
            slack = f"slack_factor {policy.slack_factor:g}"
        if trial.best >= allowed:
            return None
        return (
            f"bandit: best value {self._shown(trial.best)} at interval {trial.intervals} is not "
            f"within {slack} of {self._shown(best)}, the best of all trials: the bound is "
            f"{self._shown(allowed)}"
        )

    def _below_median(self, trial: _Progress) -> str | None:
        median = _median(self._sorted[trial.intervals])
        if trial.best >= median:
            return None
        return (
            f"median_stopping: best value {self._shown(trial.best)} at interval "
            f"{trial.intervals} is worse than {self._shown(median)}, the median of the running "
            f"averages of {len(self._sorted[trial.intervals])} trials"
        )

    def _truncated(self, policy: TruncationSelection, trial: _Progress, score: float) -> str | None:
        scores = self._sorted[trial.intervals]
        lowest = len(scores) * policy.truncation_percentage // 100
        rank = bisect_left(scores, score)
        # Of equal ones none is lower than the other.
        if rank >= lowest or score >= scores[-1]:
            return None
        return (
            f"truncation_selection: value {self._shown(score)} at interval {trial.intervals} is "
            f"among the lowest {policy.truncation_percentage} % of {len(scores)} trials"
        )

    def _shown(self, score: float) -> str:
        return f"{self._sign * score:.6g}" if math.isfinite(score) else "no finite number"


def _median(ascending: Sequence[float]) -> float:
    middle = len(ascending) // 2
    if len(ascending) % 2:
        return ascending[middle]
    return (ascending[middle - 1] + ascending[middle]) / 2
