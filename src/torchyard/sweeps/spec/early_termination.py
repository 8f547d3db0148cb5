"""Policies that end trials early, as the file of a sweep names them.

Owns: the policies, their settings and their defaults.
Leaves: deciding to stopping/.
Always: `evaluation_interval` is 1 or more; an interval is one value of the primary metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.documents.checks import At, By, Whole
from torchyard.base.documents.models import declared, keys, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described
from torchyard.sweeps.spec.typed import Typed, Types

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


def _interval(value: Any, at: At) -> int:
    key = str(at[-1])
    return max(Whole(0, _MOST_INTERVALS).read({key: value}, key, at[:-1], 1), 1)


class IntervalsFile(Typed):
    """Of Azure's policies."""

    evaluation_interval: int = declared(1, check=By(_interval))
    delay_evaluation: int = declared(0, check=Whole(0, _MOST_INTERVALS))


class BanditFile(IntervalsFile):
    slack_factor: float | None = declared(None, check=By(_slack))
    slack_amount: float | None = declared(None, check=By(_slack))

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


class TruncationFile(IntervalsFile):
    truncation_percentage: int = declared(..., check=Whole(1, 99))
    exclude_finished_jobs: bool = declared(False, check=By(lambda value, at: bool(value)))


class RungsFile(Typed):
    max_intervals: int = declared(
        ..., "values of the primary metric that a whole trial logs", Whole(1, _MOST_INTERVALS)
    )
    min_intervals: int = declared(1, check=Whole(1, _MOST_INTERVALS))
    reduction_factor: int = declared(3, check=Whole(2, _MOST_INTERVALS))

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


TYPES = Types(
    "a policy",
    {
        "bandit": (
            BanditFile,
            "ends a trial whose best value is further from the best of all at the same interval",
        ),
        "median_stopping": (
            IntervalsFile,
            "ends a trial whose best value is worse than the median of all running averages",
        ),
        "truncation_selection": (
            TruncationFile,
            "ends a trial whose value is among that share of the worst at the same interval",
        ),
        "asha": (
            RungsFile,
            "torchyard's own: trials pause at rungs; the best of each go on from their checkpoint",
        ),
        "hyperband": (RungsFile, "torchyard's own: ASHA in several brackets"),
    },
)
_CLASSES: dict[str, type[Policy]] = {
    "bandit": Bandit,
    "median_stopping": MedianStopping,
    "truncation_selection": TruncationSelection,
    "asha": Asha,
    "hyperband": Hyperband,
}


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
    kind, file = TYPES.read_mapping(body, at)
    settings = {key: getattr(file, key) for key in keys(type(file)) if key != "type"}
    if kind == "bandit":
        has_factor = file.slack_factor is not None and not file.slack_amount
        settings["slack_amount" if has_factor else "slack_factor"] = None
    return _CLASSES[kind](**settings)


def type_of(policy: Policy | None) -> str:
    """The `type` that a file names it by; empty for none."""
    return next((kind for kind, each in _CLASSES.items() if isinstance(policy, each)), "")


def first_decision(policy: Policy) -> tuple[int, str]:
    """The first interval at which it may end a trial, and the setting that defers it to there."""
    if isinstance(policy, Asha | Hyperband):
        return policy.min_intervals, "min_intervals"
    every, delay = policy.evaluation_interval, policy.delay_evaluation
    if delay > every:
        return math.ceil(delay / every) * every, "delay_evaluation"
    return every, "evaluation_interval"
