"""Trials as the search knows them.

Owns: what of a trial's row the sampler is told, and that as JSON, for sweeps that go on from it.
Leaves: rows to trial_store.py, suggesting to search/.
Always: what was told of an ended trial never changes, so a suggestion can be made again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from torchyard.sweeps.records.types import Outcome, Trial
from torchyard.sweeps.search.search import KnownTrial


def of(trials: Iterable[Trial]) -> list[KnownTrial]:
    """In the order of the trials; those that a user canceled count as failed."""
    return [one(trial) for trial in trials]


def one(trial: Trial) -> KnownTrial:
    values = tuple(value for value in trial.values if math.isfinite(value))
    if trial.outcome is Outcome.LIVE:
        return KnownTrial(trial.number, dict(trial.parameters), "running")
    if trial.outcome is Outcome.COMPLETED and values:
        state = "completed"
    elif trial.outcome is Outcome.STOPPED and values:
        state = "stopped"
    else:
        return KnownTrial(trial.number, dict(trial.parameters), "failed")
    return KnownTrial(
        trial.number,
        dict(trial.parameters),
        "completed" if state == "completed" else "stopped",
        values,
        trial.intervals,
        trial.constraints,
    )


def to_json(known_trial: KnownTrial) -> dict[str, Any]:
    return dict(vars(known_trial))


def from_json(body: Mapping[str, Any]) -> KnownTrial:
    return KnownTrial(
        body["number"],
        dict(body["parameters"]),
        body["state"],
        tuple(body["values"]),
        body["intervals"],
        tuple(body["constraints"]),
    )
