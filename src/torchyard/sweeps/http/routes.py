"""HTTP: what only sweeps have."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from typing_extensions import TypedDict

from torchyard.base.clock import to_text
from torchyard.base.errors import InvalidInput
from torchyard.jobs import actions as jobs
from torchyard.jobs.owners import OwnJob
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import answer_types
from torchyard.jobs.requests.to_json import job_json
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.shared.record_rules import JsonNumber, number_json
from torchyard.sweeps import actions
from torchyard.sweeps.records.types import Outcome, Trial
from torchyard.sweeps.running import sweep_plots
from torchyard.sweeps.spec import early_termination
from torchyard.sweeps.stopping.rungs import RungResult
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/sweeps", tags=["sweeps"], route_class=GuardedRoute
)


class SweepObjective(TypedDict):
    primary_metric: str
    goal: str


class SweepTrial(TypedDict):
    number: int
    name: str
    status: str
    outcome: Outcome
    parameters: dict[str, Any]
    values: list[JsonNumber]
    metrics: dict[str, JsonNumber]
    intervals: int
    reason: str
    created_at: str
    started_at: str | None
    ended_at: str | None
    duration_s: float | None


class SweepTrials(TypedDict):
    """A sweep's objectives, its trials in the order of their numbers, and the best one."""

    name: str
    status: Status
    objectives: list[SweepObjective]
    sampling: str
    seed: int | None
    early_termination: str
    parameters: list[str]
    max_total_trials: int
    max_concurrent_trials: int
    best: str | None
    trials: list[SweepTrial]


class Importances(TypedDict):
    """From 0 to 1 by parameter; `missing` says why there are none."""

    value: dict[str, float]
    missing: str


class Rung(TypedDict):
    """What became of one trial at one rung, as `RungResult` says."""

    trial: str
    number: int
    bracket: int
    interval: int
    value: JsonNumber | None
    rank: int
    reached: int
    decision: str


class Rungs(TypedDict):
    value: list[Rung]


@router.get("/{name}/trials")
@needs(Permission.READ)
def list_trials(services: ServicesOf, workspace: str, name: str) -> SweepTrials:
    """The sweep's objectives, its trials in the order of their numbers, and the best one."""
    sweep = jobs.get(services, workspace, name)
    return sweep_json(services, sweep)


@router.get("/{name}/trials.csv")
@needs(Permission.READ)
def csv_of_trials(services: ServicesOf, workspace: str, name: str) -> Response:
    """A row a trial: number, job, status, parameters, metrics, times."""
    sweep = jobs.get(services, workspace, name)
    rows = actions.trials(services, sweep)
    text = job_masking.masker(sweep).text(_csv(rows))
    return Response(text, media_type="text/csv; charset=utf-8")


@router.get("/{name}/importances")
@needs(Permission.READ)
def importances(services: ServicesOf, workspace: str, name: str) -> Importances:
    """How much each parameter matters for the primary metric, from 0 to 1; `missing` says why not
    where that can't be told.
    """
    sweep = jobs.get(services, workspace, name)
    values, missing = sweep_plots.importances(
        actions.spec(services.db, sweep), actions.trials(services, sweep)
    )
    return {"value": values, "missing": missing}


@router.get("/{name}/rungs")
@needs(Permission.READ)
def list_rungs(services: ServicesOf, workspace: str, name: str) -> Rungs:
    """What became of the trials at the rungs of ASHA or Hyperband, by bracket and interval, the
    best first; empty with another policy.
    """
    sweep = jobs.get(services, workspace, name)
    return {"value": [rung_json(sweep, rung) for rung in actions.rungs(services, sweep)]}


@router.post("/{name}/extend")
@needs(Permission.JOB)
def extend(
    services: ServicesOf,
    sweep: OwnJob,
    max_total_trials: Annotated[Any, Body(embed=True)],
) -> answer_types.Job:
    """Let a sweep, also one that has ended, go on up to so many trials in all."""
    if isinstance(max_total_trials, bool) or not isinstance(max_total_trials, int):
        raise InvalidInput("`max_total_trials` must be a whole number", at=("max_total_trials",))
    return job_json(services, actions.add_trials(services, sweep, max_total_trials))


def sweep_json(services: RecordServices, sweep: Job) -> SweepTrials:
    spec = actions.spec(services.db, sweep)
    rows = actions.trials(services, sweep)
    best = actions.best_of(rows, spec.objective.goal)
    body: SweepTrials = {
        "name": sweep.name,
        "status": sweep.status,
        "objectives": [
            {"primary_metric": each.primary_metric, "goal": each.goal} for each in spec.objectives
        ],
        "sampling": spec.sampling.algorithm,
        "seed": spec.sampling.seed,
        "early_termination": early_termination.type_of(spec.early_termination),
        "parameters": list(spec.space.parameters),
        "max_total_trials": spec.limits.max_total_trials,
        "max_concurrent_trials": spec.limits.max_concurrent_trials,
        "best": None if best is None else best.name,
        "trials": [trial_json(trial) for trial in rows],
    }
    return job_masking.masked(sweep, body)


def trial_json(trial: Trial) -> SweepTrial:
    return {
        "number": trial.number,
        "name": trial.name,
        "status": trial.status,
        "outcome": trial.outcome,
        "parameters": dict(trial.parameters),
        "values": list(trial.values),
        "metrics": {key: number_json(value) for key, value in trial.metrics.items()},
        "intervals": trial.intervals,
        "reason": trial.reason,
        "created_at": to_text(trial.created_at),
        "started_at": None if trial.started_at is None else to_text(trial.started_at),
        "ended_at": None if trial.ended_at is None else to_text(trial.ended_at),
        "duration_s": trial.duration_s,
    }


def rung_json(sweep: Job, rung: RungResult) -> Rung:
    return {
        "trial": f"{sweep.name}_{rung.number}",
        "number": rung.number,
        "bracket": rung.bracket,
        "interval": rung.interval,
        "value": None if rung.value is None else number_json(rung.value),
        "rank": rung.rank,
        "reached": rung.reached,
        "decision": rung.decision,
    }


def _csv(rows: list[Trial]) -> str:
    parameters = list(dict.fromkeys(name for trial in rows for name in trial.parameters))
    metrics = sorted({name for trial in rows for name in trial.metrics})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    fixed = ["number", "name", "status", "outcome", "value", "duration_s", "reason"]
    writer.writerow(
        [
            *fixed,
            *(f"parameters.{name}" for name in parameters),
            *(f"metrics.{name}" for name in metrics),
        ]
    )
    for trial in rows:
        writer.writerow(
            [
                trial.number,
                trial.name,
                trial.status,
                "live" if trial.outcome is Outcome.LIVE else trial.outcome.value,
                trial.values[0] if trial.values else "",
                "" if trial.duration_s is None else trial.duration_s,
                _plain(trial.reason),
                *(_plain(trial.parameters.get(name, "")) for name in parameters),
                *(trial.metrics.get(name, "") for name in metrics),
            ]
        )
    return out.getvalue()


def _plain(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula."""
    text = value if isinstance(value, str) else None
    return f"'{text}" if text and text[0] in "=+-@\t\r" else value
