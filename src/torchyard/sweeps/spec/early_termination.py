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

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import count, described, mapping, unknown_key
from torchyard.sweeps.spec.words import one_of

At = tuple[str | int, ...]

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

AZURE_TYPES = ("bandit", "median_stopping", "truncation_selection")
TYPES = (*AZURE_TYPES, "asha", "hyperband")
_CLASSES = (Bandit, MedianStopping, TruncationSelection, Asha, Hyperband)

_INTERVALS = ("evaluation_interval", "delay_evaluation")
_KEYS: dict[str, tuple[str, ...]] = {
    "bandit": ("slack_factor", "slack_amount", *_INTERVALS),
    "median_stopping": _INTERVALS,
    "truncation_selection": ("truncation_percentage", "exclude_finished_jobs", *_INTERVALS),
    "asha": ("max_intervals", "min_intervals", "reduction_factor"),
    "hyperband": ("max_intervals", "min_intervals", "reduction_factor"),
}


def read(body: Any, at: At, types: tuple[str, ...] = TYPES) -> Policy | None:
    """None when there is none.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place.
    """
    if body is None or body == {}:
        return None
    if not isinstance(body, Mapping):
        raise InvalidSpec(
            f"`{at[-1]}` must be a mapping with a `type`, not {described(body)}",
            f"for example `{at[-1]}: {{type: bandit, slack_factor: 0.1}}`",
            at=at,
        )
    kind = one_of(body, "type", types, at)
    for key in mapping(dict(body), "the policy"):
        if key not in ("type", *_KEYS[kind]):
            raise unknown_key(str(key), ("type", *_KEYS[kind]), at, inside=kind)
    if kind == "bandit":
        return _bandit(body, at)
    if kind == "median_stopping":
        return MedianStopping(*_intervals(body, at))
    if kind == "truncation_selection":
        return TruncationSelection(
            _percentage(body, at), *_intervals(body, at), bool(body.get("exclude_finished_jobs"))
        )
    return _rungs(Asha if kind == "asha" else Hyperband, body, at)


def type_of(policy: Policy | None) -> str:
    """The `type` that a file names it by; empty for none."""
    return "" if policy is None else TYPES[_CLASSES.index(type(policy))]


def first_decision(policy: Policy) -> tuple[int, str]:
    """The first interval at which it may end a trial, and the setting that defers it to there."""
    if isinstance(policy, Asha | Hyperband):
        return policy.min_intervals, "min_intervals"
    every, delay = policy.evaluation_interval, policy.delay_evaluation
    if delay > every:
        return math.ceil(delay / every) * every, "delay_evaluation"
    return every, "evaluation_interval"


def _bandit(body: Mapping[Any, Any], at: At) -> Bandit:
    factor, amount = _slack(body, "slack_factor", at), _slack(body, "slack_amount", at)
    # Azure's SDK sends 0 for the one that was not given.
    if factor and amount:
        raise InvalidSpec(
            "the bandit policy has both `slack_factor` and `slack_amount`", "keep one", at=at
        )
    if factor is None and amount is None:
        raise InvalidSpec(
            "the bandit policy needs `slack_factor` or `slack_amount`",
            "for example `slack_factor: 0.1`",
            at=at,
        )
    if factor is not None and not amount:
        return Bandit(factor, None, *_intervals(body, at))
    return Bandit(None, amount, *_intervals(body, at))


def _slack(body: Mapping[Any, Any], key: str, at: At) -> float | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InvalidSpec(
            f"`{key}` must be a number of 0 or more, not {described(value)}",
            f"for example `{key}: 0.1`",
            at=(*at, key),
        )
    return float(value)


def _intervals(body: Mapping[Any, Any], at: At) -> tuple[int, int]:
    every = _bounded(body, "evaluation_interval", at, default=1, least=0)
    return max(every, 1), _bounded(body, "delay_evaluation", at, default=0, least=0)


def _bounded(body: Mapping[Any, Any], key: str, at: At, *, default: int, least: int) -> int:
    value = count(body, key, at, default=default, least=least)
    if value > _MOST_INTERVALS:
        raise InvalidSpec(f"`{key}` is above {_MOST_INTERVALS}", "lower it", at=(*at, key))
    return value


def _percentage(body: Mapping[Any, Any], at: At) -> int:
    key = "truncation_percentage"
    if body.get(key) is None:
        raise InvalidSpec(f"the policy needs `{key}`", f"for example `{key}: 20`", at=at)
    value = count(body, key, at, default=0, least=1)
    if value > 99:
        raise InvalidSpec(f"`{key}` must be between 1 and 99, not {value}", at=(*at, key))
    return value


def _rungs(kind: type[Asha | Hyperband], body: Mapping[Any, Any], at: At) -> Asha | Hyperband:
    if body.get("max_intervals") is None:
        raise InvalidSpec(
            "the policy needs `max_intervals`, how many values of the primary metric a whole trial "
            "logs",
            "for example `max_intervals: 27`",
            at=at,
        )
    maximum = _bounded(body, "max_intervals", at, default=0, least=1)
    least = _bounded(body, "min_intervals", at, default=1, least=1)
    factor = _bounded(body, "reduction_factor", at, default=3, least=2)
    if least * factor > maximum:
        raise InvalidSpec(
            f"`min_intervals` times `reduction_factor` is {least * factor}, and `max_intervals` "
            f"is {maximum}: there is nothing to stop early",
            "lower `min_intervals`, or leave the policy out",
            at=(*at, "max_intervals"),
        )
    return kind(maximum, least, factor)
