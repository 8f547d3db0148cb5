"""Policies that end trials early, as the file of a sweep names them.

Owns: the policies, their settings and their defaults.
Leaves: deciding to stopping/.
Always: `evaluation_interval` is 1 or more; an interval is one value of the primary metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from torchyard.base.documents.models import At, By, Choice, Key, Whole, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described
from torchyard.sweeps.spec.typed import Typed, kind_of

_MOST_INTERVALS = 10**9


@dataclass(frozen=True)
class Bandit:
    """Of slack_factor and slack_amount exactly one is set, the other is None."""

    slack_factor: float | None = None
    slack_amount: float | None = None
    evaluation_interval: int = 1
    delay_evaluation: int = 0


@dataclass(frozen=True)
class MedianStopping:
    evaluation_interval: int = 1
    delay_evaluation: int = 0


@dataclass(frozen=True)
class TruncationSelection:
    truncation_percentage: int
    evaluation_interval: int = 1
    delay_evaluation: int = 0
    exclude_finished_jobs: bool = False


@dataclass(frozen=True)
class Asha:
    """Rungs at `min_intervals` times the powers of `reduction_factor`, below `max_intervals`."""

    max_intervals: int
    min_intervals: int = 1
    reduction_factor: int = 3


@dataclass(frozen=True)
class Hyperband:
    """Several brackets of ASHA's rungs, each of which starts one rung later."""

    max_intervals: int
    min_intervals: int = 1
    reduction_factor: int = 3


Policy = Bandit | MedianStopping | TruncationSelection | Asha | Hyperband


def _slack(value: Any, at: At) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidSpec(
            f"`{at[-1]}` must be a number of 0 or more, not {described(value)}",
            f"for example `{at[-1]}: 0.1`",
            at=at,
        )
    return float(value)


class PolicyFile(Typed):
    @property
    def policy(self) -> Policy:
        raise NotImplementedError


class IntervalsFile(PolicyFile):
    """Of Azure's policies."""

    evaluation_interval: Annotated[int, Whole(0, _MOST_INTERVALS), Key()] = 1
    delay_evaluation: Annotated[int, Whole(0, _MOST_INTERVALS), Key()] = 0

    @property
    def intervals(self) -> tuple[int, int]:
        return max(self.evaluation_interval, 1), self.delay_evaluation


class BanditFile(IntervalsFile):
    slack_factor: Annotated[float | None, By(_slack), Key()] = None
    slack_amount: Annotated[float | None, By(_slack), Key()] = None

    @rule("slack_factor", "slack_amount")
    def _one_slack(self) -> None:
        # Azure's SDK sends 0 for the one that was not given.
        if self.slack_factor and self.slack_amount:
            raise InvalidSpec(
                "the bandit policy has both `slack_factor` and `slack_amount`", "keep one"
            )
        if self.slack_factor is None and self.slack_amount is None:
            raise InvalidSpec(
                "the bandit policy needs `slack_factor` or `slack_amount`",
                "for example `slack_factor: 0.1`",
            )

    @property
    def policy(self) -> Bandit:
        if self.slack_factor is not None and not self.slack_amount:
            return Bandit(self.slack_factor, None, *self.intervals)
        return Bandit(None, self.slack_amount, *self.intervals)


class MedianStoppingFile(IntervalsFile):
    @property
    def policy(self) -> MedianStopping:
        return MedianStopping(*self.intervals)


class TruncationSelectionFile(IntervalsFile):
    truncation_percentage: Annotated[int, Whole(1, 99), Key()]
    exclude_finished_jobs: Annotated[bool, By(lambda value, at: bool(value)), Key()] = False

    @property
    def policy(self) -> TruncationSelection:
        return TruncationSelection(
            self.truncation_percentage, *self.intervals, self.exclude_finished_jobs
        )


class AshaFile(PolicyFile):
    """`max_intervals` is how many values of the primary metric a whole trial logs."""

    max_intervals: Annotated[int, Whole(1, _MOST_INTERVALS), Key()]
    min_intervals: Annotated[int, Whole(1, _MOST_INTERVALS), Key()] = 1
    reduction_factor: Annotated[int, Whole(2, _MOST_INTERVALS), Key()] = 3

    @rule("max_intervals", "min_intervals", "reduction_factor")
    def _has_rungs(self) -> None:
        second = self.min_intervals * self.reduction_factor
        if second > self.max_intervals:
            raise InvalidSpec(
                f"`min_intervals` times `reduction_factor` is {second}, and `max_intervals` "
                f"is {self.max_intervals}: there is nothing to stop early",
                "lower `min_intervals`, or leave the policy out",
                at=("max_intervals",),
            )

    @property
    def policy(self) -> Asha | Hyperband:
        return Asha(self.max_intervals, self.min_intervals, self.reduction_factor)


class HyperbandFile(AshaFile):
    @property
    def policy(self) -> Asha | Hyperband:
        return Hyperband(self.max_intervals, self.min_intervals, self.reduction_factor)


TYPES = Choice(
    bandit=Key(
        "ends a trial whose best value is further from the best of all at the same interval"
    ),
    median_stopping=Key(
        "ends a trial whose best value is worse than the median of all running averages"
    ),
    truncation_selection=Key(
        "ends a trial whose value is among that share of the worst at the same interval"
    ),
    asha=Key(
        "torchyard's own: trials pause at rungs; the best of each go on from their checkpoint"
    ),
    hyperband=Key("torchyard's own: ASHA in several brackets"),
)
FILES: dict[str, type[PolicyFile]] = {
    "bandit": BanditFile,
    "median_stopping": MedianStoppingFile,
    "truncation_selection": TruncationSelectionFile,
    "asha": AshaFile,
    "hyperband": HyperbandFile,
}
_CLASSES = (Bandit, MedianStopping, TruncationSelection, Asha, Hyperband)


def read(body: Any, at: At) -> Policy | None:
    """None when there is none.

    Raises:
        InvalidSpec: what is wrong, with its place.
    """
    if body == {}:
        return None
    if not isinstance(body, Mapping):
        raise InvalidSpec(
            f"`{at[-1]}` must be a mapping with a `type`, not {described(body)}",
            f"for example `{at[-1]}: {{type: bandit, slack_factor: 0.1}}`",
            at=at,
        )
    return FILES[kind_of(body, TYPES, at)].read(body, at).policy


def type_of(policy: Policy | None) -> str:
    """The `type` that a file names it by; empty for none."""
    return "" if policy is None else list(FILES)[_CLASSES.index(type(policy))]


def first_decision(policy: Policy) -> tuple[int, str]:
    """The first interval at which it may end a trial, and the setting that defers it to there."""
    if isinstance(policy, Asha | Hyperband):
        return policy.min_intervals, "min_intervals"
    every, delay = policy.evaluation_interval, policy.delay_evaluation
    if delay > every:
        return math.ceil(delay / every) * every, "delay_evaluation"
    return every, "evaluation_interval"
