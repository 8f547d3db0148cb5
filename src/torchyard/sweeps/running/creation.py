"""Turn a sweep's file into a sweep.

Owns: checking a sweep against the workspace, pinning what its trial names, storing it.
Leaves: the file to spec/, the trial's own checks to jobs/requests/submission.py.
Always: a sweep is stored with its first event, or not at all; its trial is checked and pinned
once; the same name with the same body is the same sweep; errors of the trial say where they stand
in the sweep's file.
"""

from __future__ import annotations

import json
import secrets as random_numbers
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from torchyard.base import refs
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.documents import secret_variables
from torchyard.base.errors import DatabaseUnreachable, InvalidSpec, TorchyardError, moved
from torchyard.components import actions as components
from torchyard.jobs import actions as jobs
from torchyard.jobs.records import names
from torchyard.jobs.records.types import Job, NewJob, Status
from torchyard.jobs.requests import parents, submission
from torchyard.jobs.services import Services
from torchyard.sweeps.records import known_trials, trial_store
from torchyard.sweeps.records.trial_store import TYPE, SweepRow
from torchyard.sweeps.running import news
from torchyard.sweeps.search.search import Search
from torchyard.sweeps.spec import sweep_spec, trials
from torchyard.sweeps.spec.sweep_spec import SweepSpec
from torchyard.workspaces.types import Identity

# Of a trial's job file, the keys that stand below `trial` in the sweep's.
_TRIAL_KEYS = (
    *("command", "code", "environment", "environment_variables", "distribution", "resources"),
    *("services", "job_tier"),
)
# Of a component, what an inline trial may have.
_COMPONENT_KEYS = ("command", "code", "environment", "distribution", "resources")
_PLACEHOLDER = "sweep"
_SEEDS = 1 << 31


@dataclass(frozen=True)
class CheckedSweep:
    """A valid sweep: its spec, its document with the trial inline, and its trial as checked."""

    spec: SweepSpec
    document: Mapping[str, Any]
    trial: submission.Checked
    trial_document: Mapping[str, Any]
    notices: tuple[str, ...]


def check(services: Services, workspace: str, document: Any, uploaded: bool) -> CheckedSweep:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    spec = sweep_spec.read(document)
    inline = dict(document)
    if spec.component:
        spec, inline = _with_component(services.db, workspace, spec, inline)
    Search().check(spec)
    named_spec = replace(spec, name=spec.name or _PLACEHOLDER)
    trial_document = named_spec.trial_document(0, trials.example(spec.space))
    for key in ("name", "parent_job_name"):
        trial_document.pop(key, None)
    try:
        checked = submission.check(services, workspace, trial_document, uploaded=uploaded)
    except DatabaseUnreachable:
        raise
    except TorchyardError as error:
        raise moved(error, lambda at: _key_in_sweep(at, spec, document)) from error
    notices = dict.fromkeys((*spec.notices, *checked.notices))
    return CheckedSweep(spec, inline, checked, trial_document, tuple(notices))


def _key_in_sweep(
    at: tuple[str | int, ...], spec: SweepSpec, document: Mapping[str, Any]
) -> tuple[str | int, ...]:
    """Where what stands there in a trial's file stands in the sweep's."""
    if not at or at[0] not in _TRIAL_KEYS:
        return at
    if spec.component:
        return ("trial",)
    inner = document.get("trial")
    return ("trial", *at) if isinstance(inner, Mapping) and at[0] in inner else at


def _with_component(
    db: Database, workspace: str, spec: SweepSpec, document: dict[str, Any]
) -> tuple[SweepSpec, dict[str, Any]]:
    """The sweep with its component's content as an inline trial, defaults of its inputs filled in.

    Raises:
        InvalidSpec: the component is missing, or can't be a trial of this sweep.
    """
    try:
        ref = refs.parse(spec.component)
        version = ref.version or ref.label or components.LATEST
        component = components.get(db, workspace, ref.name, version)
    except DatabaseUnreachable:
        raise
    except TorchyardError as error:
        raise InvalidSpec(error.message, error.hint, code=error.code, at=("trial",)) from error
    definition = component.definition
    trial = {key: definition[key] for key in _COMPONENT_KEYS if key in definition}
    environment = trial.get("environment")
    if isinstance(environment, str) and not environment.startswith("azureml:"):
        trial["environment"] = f"azureml:{environment}"
    inputs = dict(document.get("inputs") or {})
    for name, port in (definition.get("inputs") or {}).items():
        if "default" in port and name not in spec.space.parameters:
            inputs.setdefault(name, port["default"])
    if inputs:
        document = {**document, "inputs": inputs}
        spec = replace(spec, inputs=sweep_spec.read(document).inputs)
    spec = spec.with_trial(trial)
    return spec, {**document, "trial": dict(spec.trial)}


def create(
    services: Services, workspace: str, document: Mapping[str, Any], identity: Identity
) -> tuple[Job, bool]:
    """Store a sweep; the job, and whether it is new.

    Raises:
        InvalidSpec: what is wrong, and where.
        LimitExceeded: its trials exceed a quota and can never run.
        Conflict: the name is taken by another job.
    """
    body = submission.body_of(document)
    name = document.get("name")
    job = jobs.find_by_name(services.db, workspace, name) if isinstance(name, str) else None
    if job is not None:
        # Sent again: what it names may have changed since, the sweep has not.
        submission.require_same(job, submission.hash_of(body), identity)
        return job, False
    sweep = check(services, workspace, document, True)
    sweep = replace(
        sweep, trial=submission.allowed(services, workspace, sweep.trial, identity.user)
    )
    name = sweep.spec.name or names.generate()
    row = _row(services.db, workspace, sweep.spec)
    try:
        with services.db.write() as connection:
            inside = replace(services, db=services.db.joined(connection))
            submission.refuse_deleted(inside, workspace, sweep.trial)
            new = _new_job(connection, services.clock, workspace, name, sweep, body, identity)
            job = parents.add(connection, new, sweep.notices)
            trial_store.add_sweep(connection, replace(row, job_id=job.id))
    except IntegrityError:
        job = jobs.get(services, workspace, name)
        submission.require_same(job, submission.hash_of(body), identity)
        return job, False
    services.signals.notify(jobs.job_key(job))
    services.signals.notify(news.SWEEPS)
    return job, True


def _row(db: Database, workspace: str, spec: SweepSpec) -> SweepRow:
    """
    Raises:
        InvalidSpec: the sweep that it goes on from does not exist.
    """
    seed = None if spec.sampling.is_seeded else random_numbers.randbelow(_SEEDS)
    earlier: list[dict[str, Any]] = []
    if isinstance(spec.warm_start, str):
        at = ("torchyard", "warm_start")
        before = jobs.find_by_name(db, workspace, spec.warm_start)
        if before is None or before.type != TYPE:
            raise InvalidSpec(
                f"sweep `{spec.warm_start}` does not exist in workspace `{workspace}`",
                "name an earlier sweep, or list parameters",
                at=at,
            )
        with db.read() as connection:
            there = trial_store.trials_of(connection, before.id)
        earlier = [known_trials.to_json(each) for each in known_trials.of(there)]
    return SweepRow(0, spec.limits.max_total_trials, seed=seed, earlier=earlier)


def _new_job(
    connection: Connection,
    clock: Clock,
    workspace: str,
    name: str,
    sweep: CheckedSweep,
    body: Mapping[str, Any],
    identity: Identity,
) -> NewJob:
    spec, trial = sweep.spec, sweep.trial
    experiment = jobs.ensure_experiment(connection, clock, workspace, spec.experiment_name)
    masker = secret_variables.masker(sweep.document)
    return NewJob(
        workspace=workspace,
        name=name,
        type=TYPE,
        experiment_id=experiment.id,
        status=Status.NOT_STARTED,
        owner=identity.user,
        display_name=masker.text(spec.display_name) or name,
        document=_pinned(sweep),
        created_at=clock.now(),
        spec_hash=submission.hash_of(body),
        environment=trial.environment,
        compute=trial.spec.compute,
        node_count=trial.spec.fewest_nodes,
        processes_per_node=trial.spec.process_count_per_instance,
        tags=masker.json(dict(spec.tags)),
        properties={**_properties(spec), **masker.json(dict(spec.properties))},
        description=masker.text(spec.description),
        parent=str(body.get("parent_job_name") or ""),
    )


def _pinned(sweep: CheckedSweep) -> dict[str, Any]:
    """The document with its trial's environment, its cluster and its inputs' paths pinned."""
    pinned_trial = submission.pinned_document(sweep.trial_document, sweep.trial)
    document = submission.body_of(sweep.document)
    document["type"] = TYPE
    trial = dict(sweep.spec.trial)
    if "environment" in trial:
        trial["environment"] = pinned_trial["environment"]
    if sweep.trial.environment.job_variables:
        written = trial.get("environment_variables") or {}
        trial["environment_variables"] = {**dict(sweep.trial.environment.job_variables), **written}
    document["trial"] = trial
    if document.get("compute"):
        document["compute"] = pinned_trial["compute"]
    if document.get("inputs"):
        document["inputs"] = {
            name: pinned_trial.get("inputs", {}).get(name, value)
            for name, value in document["inputs"].items()
        }
    return document


def _properties(spec: SweepSpec) -> dict[str, str]:
    """What Azure's clients read of a sweep."""
    objective = spec.objective
    config = {"name": objective.primary_metric, "goal": objective.goal}
    return {
        "primary_metric_config": json.dumps(config),
        "runTemplate": "HyperDrive",
        "azureml.runsource": "hyperdrive",
    }
