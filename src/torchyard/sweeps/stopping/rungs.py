"""ASHA and Hyperband: at which rungs trials pause, and which are promoted.

Owns: the rungs and brackets; who goes on; the table of who came to which rung.
Leaves: pausing and resuming from checkpoints to running/.
Always: a decision depends on the values at the rungs and on earlier promotions alone, so that it
can be made again.

Source: Li et al., A System for Massively Parallel Hyperparameter Tuning, arXiv:1810.05934; Li et
al., Hyperband, arXiv:1603.06560.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from torchyard.sweeps.spec.early_termination import Asha, Hyperband


@dataclass(frozen=True)
class Climb:
    """A trial's way up: its primary metric, value by value, and how often it was promoted."""

    series: Sequence[float]
    promotions: int = 0
    has_ended: bool = False
    """Ended by itself, failed or was canceled: it can't go on."""
    was_stopped: bool = False
    """Of one that has ended: it was left behind at a rung."""


@dataclass(frozen=True)
class RungResult:
    """What became of one trial at one rung.

    `value` is the one it is compared by, the `rank`-th best of the `reached` trials there; None
    while a promoted trial, back at an earlier checkpoint, has yet to log it again. `decision` is
    `promoted`, `waiting`, `stopped`, or `ended` where it ended otherwise.
    """

    number: int
    bracket: int
    interval: int
    value: float | None
    rank: int
    reached: int
    decision: str


def rungs(policy: Asha | Hyperband, number: int) -> tuple[int, ...]:
    """The numbers of intervals at which trial `number` pauses, unless it is promoted."""
    return _all_rungs(policy)[_bracket(policy, number) :]


def next_rung(policy: Asha | Hyperband, number: int, promotions: int) -> int | None:
    """The interval at which the trial pauses next; None when it runs to its end."""
    remaining = rungs(policy, number)[promotions:]
    return remaining[0] if remaining else None


def promotable(policy: Asha | Hyperband, goal: str, climbs: Mapping[int, Climb]) -> list[int]:
    """The trials that wait at a rung and are to go on, those at higher rungs first.

    Args:
        climbs: of all trials, by number.
    """
    chosen = []
    for bracket in sorted({_bracket(policy, number) for number in climbs}):
        rivals = {n: climb for n, climb in climbs.items() if _bracket(policy, n) == bracket}
        for index, rung in enumerate(_all_rungs(policy)[bracket:]):
            ranked = _ranked(goal, rivals, index, rung)
            best = ranked[: len(ranked) // policy.reduction_factor]
            chosen += [
                (-rung, position, number)
                for position, number in enumerate(best)
                if climbs[number].promotions == index and not climbs[number].has_ended
            ]
    return [number for _, _, number in sorted(chosen)]


def reason(policy: Asha | Hyperband, goal: str, number: int, climbs: Mapping[int, Climb]) -> str:
    """Why trial `number`, which waits at a rung, did not go on."""
    climb = climbs[number]
    rung = next_rung(policy, number, climb.promotions)
    assert rung is not None and len(climb.series) >= rung
    bracket = _bracket(policy, number)
    rivals = {n: other for n, other in climbs.items() if _bracket(policy, n) == bracket}
    ranked = _ranked(goal, rivals, climb.promotions, rung)
    name = "asha" if isinstance(policy, Asha) else f"hyperband, bracket {bracket}"
    return (
        f"{name}: value {climb.series[rung - 1]:.6g} at interval {rung} is number "
        f"{ranked.index(number) + 1} of {len(ranked)} trials, of which "
        f"{len(ranked) // policy.reduction_factor} went on"
    )


def table(policy: Asha | Hyperband, goal: str, climbs: Mapping[int, Climb]) -> list[RungResult]:
    """What became of the trials at each rung: by bracket and interval, the best first.

    Args:
        climbs: of all trials, by number.
    """
    results = []
    for bracket in sorted({_bracket(policy, number) for number in climbs}):
        rivals = {n: climb for n, climb in climbs.items() if _bracket(policy, n) == bracket}
        for index, rung in enumerate(_all_rungs(policy)[bracket:]):
            ranked = _ranked(goal, rivals, index, rung)
            for rank, number in enumerate(ranked, 1):
                climb = climbs[number]
                value = climb.series[rung - 1] if len(climb.series) >= rung else None
                decision = _decision(climb, index)
                results.append(
                    RungResult(number, bracket, rung, value, rank, len(ranked), decision)
                )
    return results


def _decision(climb: Climb, index: int) -> str:
    if climb.promotions > index:
        return "promoted"
    if not climb.has_ended:
        return "waiting"
    return "stopped" if climb.was_stopped else "ended"


def _ranked(goal: str, rivals: Mapping[int, Climb], index: int, rung: int) -> list[int]:
    """Those of a bracket that got to its rung `index`, best first; of equal ones the earlier.

    A trial that was promoted from it is still one of them, the best, while it is back at an earlier
    checkpoint: otherwise others would be promoted in its place.
    """
    sign = -1.0 if goal == "maximize" else 1.0

    def rank(number: int) -> tuple[float, int]:
        series = rivals[number].series
        if len(series) < rung:
            return (-math.inf, number)
        value = sign * series[rung - 1]
        return (value if math.isfinite(value) else math.inf, number)

    return sorted((n for n, climb in rivals.items() if _has_reached(climb, index, rung)), key=rank)


def _has_reached(climb: Climb, index: int, rung: int) -> bool:
    if climb.promotions > index:
        return True
    # One that is to pause may log a few values more before it stops.
    is_here = climb.promotions == index or (climb.has_ended and not climb.was_stopped)
    return is_here and len(climb.series) >= rung


@lru_cache(maxsize=64)
def _all_rungs(policy: Asha | Hyperband) -> tuple[int, ...]:
    intervals = []
    rung = policy.min_intervals
    while rung < policy.max_intervals:
        intervals.append(rung)
        rung *= policy.reduction_factor
    return tuple(intervals)


def _bracket(policy: Asha | Hyperband, number: int) -> int:
    """How many of the lower rungs the trial leaves out: brackets are filled one by one, over and
    over, with as many trials as Hyperband gives them.
    """
    if isinstance(policy, Asha):
        return 0
    sizes = _bracket_sizes(policy)
    position = number % sum(sizes)
    for bracket, size in enumerate(sizes):
        if position < size:
            return bracket
        position -= size
    raise AssertionError("the position is below the sum of the sizes")


@lru_cache(maxsize=64)
def _bracket_sizes(policy: Hyperband) -> tuple[int, ...]:
    levels = len(_all_rungs(policy)) + 1
    return tuple(
        math.ceil(levels / (left + 1) * policy.reduction_factor**left)
        for left in reversed(range(levels))
    )
