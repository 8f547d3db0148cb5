"""The trials of a sweep, as the SDK shows them.

Owns: `Trial`, the table of trials and its pandas form, `Rung`.
Leaves: requests to job_reader.py.
Always: the best trial is the one that the server names.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchyard.base.errors import InvalidInput
from torchyard.client import resources as read
from torchyard.client.resources import Json, Listing, Resource

if TYPE_CHECKING:
    DataFrame = Any


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Trial(Resource):
    """One trial of a sweep: the job `name` with these `parameters`.

    Args:
        outcome: `completed`, `stopped` early, `failed`, `canceled`; empty while it goes on.
        value: of the primary metric, the first of `values`; None before the first.
        values: of each objective: of the only one the best so far, of several the last.
        reason: why it was stopped, or counts as failed.
        metrics: the last value of each metric.
    """

    number: int
    name: str
    status: str
    outcome: str
    parameters: Mapping[str, Any]
    value: float | None
    values: tuple[float, ...]
    metrics: Mapping[str, float]
    reason: str
    duration_s: float | None

    _shown = ("number", "name", "status", "parameters", "value")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SweepTrials(Resource):
    """All trials of a sweep; `best` is None before one has logged the primary metric."""

    name: str
    status: str
    primary_metric: str
    goal: str
    trials: Listing[Trial]
    best: Trial | None

    _shown = ("name", "status", "primary_metric", "goal")

    def to_pandas(self) -> DataFrame:
        """A pandas DataFrame: a row a trial, its number the index, a column a parameter.

        Raises:
            InvalidInput: pandas is not installed here.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise InvalidInput(
                "this needs pandas, which is not installed here",
                "`pip install pandas`; or use `.trials`",
                code="extra_missing",
            ) from error
        rows = [
            {
                "number": trial.number,
                "name": trial.name,
                "status": trial.status,
                "outcome": trial.outcome,
                **{f"parameters.{key}": value for key, value in trial.parameters.items()},
                self.primary_metric: trial.value,
                "duration_s": trial.duration_s,
                "reason": trial.reason,
            }
            for trial in self.trials
        ]
        frame = pandas.DataFrame(rows)
        return frame.set_index("number") if rows else frame


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Rung(Resource):
    """What became of one trial at one rung of ASHA or Hyperband.

    Args:
        trial: the trial's name.
        bracket: of Hyperband, from 0 on; 0 for ASHA.
        interval: so many values of the primary metric a trial has logged at the rung.
        value: the one that it is compared by; None while a promoted trial, which went on from an
            earlier checkpoint, has yet to log it again.
        rank: from 1 on, among the `reached` trials of its bracket that got there.
        decision: `promoted`, `waiting`, `stopped`, or `ended` where it ended otherwise.
    """

    trial: str
    number: int
    bracket: int
    interval: int
    value: float | None
    rank: int
    reached: int
    decision: str

    _shown = ("trial", "interval", "value", "decision")


def rungs_from_json(raw: Json) -> Listing[Rung]:
    return Listing(
        Rung(
            raw=row,
            trial=row["trial"],
            number=row["number"],
            bracket=row["bracket"],
            interval=row["interval"],
            value=read.optional_number(row, "value"),
            rank=row["rank"],
            reached=row["reached"],
            decision=row["decision"],
        )
        for row in raw["value"]
    )


def sweep_trials_from_json(raw: Json) -> SweepTrials:
    trials: Listing[Trial] = Listing(_trial(row) for row in raw["trials"])
    best = next((trial for trial in trials if trial.name == raw.get("best")), None)
    objective = raw["objectives"][0]
    return SweepTrials(
        raw=raw,
        name=raw["name"],
        status=raw["status"],
        primary_metric=objective["primary_metric"],
        goal=objective["goal"],
        trials=trials,
        best=best,
    )


def _trial(raw: Json) -> Trial:
    values = tuple(float(value) for value in raw["values"])
    return Trial(
        raw=raw,
        number=raw["number"],
        name=raw["name"],
        status=raw["status"],
        outcome=raw["outcome"],
        parameters=raw["parameters"],
        value=values[0] if values else None,
        values=values,
        metrics={key: float(value) for key, value in raw["metrics"].items()},
        reason=raw["reason"],
        duration_s=read.optional_number(raw, "duration_s"),
    )
