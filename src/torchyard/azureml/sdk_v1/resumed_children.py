"""Earlier runs in a HyperDriveConfig: `resume_from` and `resume_child_runs`.

Owns: what a new sweep takes from earlier ones.
Leaves: the search itself to sweeps/, which begins with the points that are given here.
Always: a resumed child is a new trial with the parameters of the old one; its script gets the old
one's outputs as `--resume-from`, and in the variable that Azure's examples read.

Source: azureml-train-core 1.62, `HyperDriveConfig`; docs/decisions/0087.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices, RecordServices
from torchyard.sweeps import actions as sweeps
from torchyard.sweeps.records.types import Trial
from torchyard.sweeps.spec import sweep_spec

RESUME_FROM, RESUME_CHILDREN = "resume_from", "resume_child_runs"
_OUTPUTS = "outputs"
_MOST_RUNS = 1000
# Of `max_total_runs`, how many trials a Bayesian search begins with that were good before.
_SHARE = 4
_VARIABLE = "AZUREML_DATAREFERENCE_MODEL_LOCATION"


@dataclass(frozen=True)
class _Child:
    job: Job
    trial: Trial
    has_outputs: bool


def with_earlier_runs(
    services: FileServices, workspace: str, config: Mapping[str, Any], document: Mapping[str, Any]
) -> dict[str, Any]:
    """The sweep's file with what it takes from earlier runs.

    Raises:
        InvalidInput: one is not a sweep, or not a trial of a sweep.
        NotFound: one does not exist.
        Conflict: a child has not ended.
    """
    sweep_names = _run_ids(config, RESUME_FROM)
    child_names = _run_ids(config, RESUME_CHILDREN)
    earlier = [_sweep(services, workspace, name) for name in sweep_names]
    children = [_child(services, workspace, name) for name in child_names]
    points = [dict(child.trial.parameters) for child in children]
    learns = document["sampling_algorithm"]["type"] == "bayesian"
    # The sampler is told of all trials of one sweep, or begins with the best of several.
    is_told = learns and len(earlier) == 1 and not points
    if learns and not is_told:
        points += _best_points(services, earlier, document["limits"]["max_total_trials"])
    changed = dict(document)
    properties = {
        key: json.dumps(config[key]) for key in (RESUME_FROM, RESUME_CHILDREN) if config.get(key)
    }
    if properties:
        changed["properties"] = {**changed.get("properties", {}), **properties}
    if points or is_told:
        changed["torchyard"] = {"warm_start": points or earlier[0].name}
    return _resuming(changed, children)


def _resuming(document: dict[str, Any], children: Sequence[_Child]) -> dict[str, Any]:
    """The first trials, which have the children's parameters, also get their outputs. A child that
    has left none gives its parameters alone.
    """
    inputs, cases = dict(document.get("inputs") or {}), []
    for number, child in enumerate(children):
        if not child.has_outputs:
            continue
        name = f"resumed_{number}"
        path = (
            f"azureml://datastores/{ARTIFACT_STORE}/paths/{artifacts_of(child.job.name)}/{_OUTPUTS}"
        )
        inputs[name] = {"type": "uri_folder", "path": path, "mode": "ro_mount"}
        reference = f'"${{{{inputs.{name}}}}}"'
        cases.append(
            f"*_{number}) set -- --resume-from {reference}; export {_VARIABLE}={reference} ;;"
        )
    if not cases:
        return document
    trial = dict(document["trial"])
    command = trial["command"]
    trial["command"] = f'case "$AZUREML_RUN_ID" in {" ".join(cases)} esac; {command} "$@"'
    return {**document, "inputs": inputs, "trial": trial}


def _best_points(
    services: RecordServices, earlier: Sequence[Job], max_total: int
) -> list[dict[str, Any]]:
    """The best parameters of earlier sweeps, the best first."""
    valued = []
    for job in earlier:
        sign = -1 if sweep_spec.read(job.document).objective.goal == "maximize" else 1
        for trial in sweeps.trials(services, job):
            if trial.values and math.isfinite(trial.values[0]):
                valued.append((sign * trial.values[0], dict(trial.parameters)))
    best = sorted(valued, key=lambda pair: pair[0])[: max(1, max_total // _SHARE)]
    return [parameters for _, parameters in best]


def _run_ids(config: Mapping[str, Any], key: str) -> list[str]:
    runs = config.get(key) or []
    if not isinstance(runs, list) or len(runs) > _MOST_RUNS:
        raise InvalidInput(f"`{key}` is not a list of up to {_MOST_RUNS} runs", at=[key])
    ids = [str(run.get("run_id") or "") if isinstance(run, Mapping) else "" for run in runs]
    if not all(ids):
        raise InvalidInput(f"a run in `{key}` has no `run_id`", at=[key])
    return ids


def _sweep(services: RecordServices, workspace: str, name: str) -> Job:
    job = actions.get(services, workspace, name)
    if job.type != sweeps.TYPE:
        raise InvalidInput(f"`{name}` in `{RESUME_FROM}` is not a HyperDrive run", at=[RESUME_FROM])
    return job


def _child(services: FileServices, workspace: str, name: str) -> _Child:
    job = actions.get(services, workspace, name)
    above = actions.find_by_name(services.db, workspace, job.parent) if job.parent else None
    trials = sweeps.trials(services, above) if above and above.type == sweeps.TYPE else []
    trial = next((trial for trial in trials if trial.name == name), None)
    if trial is None:
        raise InvalidInput(
            f"`{name}` in `{RESUME_CHILDREN}` is not a child of a HyperDrive run",
            at=[RESUME_CHILDREN],
        )
    if not job.status.ended:
        raise Conflict(f"run `{name}` is {job.status.value}", "resume it once it has ended")
    return _Child(job, trial, bool(artifacts.list_of(services, job, _OUTPUTS)))
