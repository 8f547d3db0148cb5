"""What a suggestion is made from.

Owns: `KnownTrial`, `Setup`; which trials a suggestion waits for.
Leaves: suggesting to search.py.
Always: with a seed, a suggestion is made from the trials that `needed` names and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torchyard.sweeps.spec.search_space import SearchSpace, Value
from torchyard.sweeps.spec.sweep_spec import SweepSpec


@dataclass(frozen=True)
class KnownTrial:
    """A trial that has ended, or is running when `state` says so.

    `values` are the objectives' in their order, empty when it failed or has none; of one stopped
    early the last ones, after `intervals` values of the primary metric. `constraints` are the
    values of the sampling's constraint metrics.
    """

    number: int
    parameters: dict[str, Value]
    state: Literal["completed", "failed", "stopped", "running"] = "completed"
    values: tuple[float, ...] = ()
    intervals: int = 0
    constraints: tuple[float, ...] = ()


@dataclass(frozen=True)
class Setup:
    """What a study is made from. `lag` is how many trials run at once, for repeatable sweeps; 0
    for others.
    """

    space: SearchSpace
    algorithm: str
    seed: int
    directions: tuple[str, ...]
    lag: int = 0
    warm_start: tuple[Mapping[str, Value], ...] = ()
    earlier: tuple[KnownTrial, ...] = ()
    constraints: tuple[str, ...] = ()


def needed(spec: SweepSpec, number: int) -> range:
    """The trials that must have ended before `number` is suggested; empty when none must.

    With a seed and C trials at once these are all but the C - 1 before it, however many of those
    have ended, so that the suggestion never depends on which trial was quicker.
    """
    is_given = not isinstance(spec.warm_start, str) and number < len(spec.warm_start)
    if is_given or not (spec.sampling.is_adaptive and spec.sampling.is_seeded):
        return range(0)
    return range(max(0, number - spec.limits.max_concurrent_trials + 1))
