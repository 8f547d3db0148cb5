"""Compare an existing sweep with a document that a client sends again.

Owns: whether the document is that sweep's: how it searches, stops and is limited, and its trial.
Leaves: a trial as a command job to jobs/requests/resubmission.py, changing labels to
jobs/actions.py.
Always: what the server fills in, such as pinned references and a drawn seed, does not count, nor
does an own setting (`torchyard.…`) that the client does not send back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchyard.base.documents import secret_variables
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import resubmission
from torchyard.jobs.services import FileServices
from torchyard.jobs.spec import job_spec
from torchyard.sweeps.actions import TYPE
from torchyard.sweeps.spec import sweep_spec, trials
from torchyard.sweeps.spec.early_termination import Policy, TruncationSelection
from torchyard.sweeps.spec.sweep_spec import SweepSpec

_OWN = "torchyard."


def require_same(services: FileServices, job: Job, document: Mapping[str, Any]) -> None:
    """
    Raises:
        InvalidSpec: the document is not a sweep's.
        Conflict: it differs from the job; the message names the keys.
    """
    if document.get("type") != TYPE:
        raise resubmission.conflict(job, ["type"])
    stored = sweep_spec.read(job.document)
    request = sweep_spec.read(_with_own_settings(stored, _with_secrets(job, document)))
    before, after = _search_of(stored), _search_of(request)
    names = [name for name in before if before[name] != after[name]]
    # A command is checked against its space, and can't be filled in from another one.
    if "search_space" not in names:
        specs = (job_spec.read(_trial_of(job, spec, stored)) for spec in (stored, request))
        names += resubmission.differing(services, job, *specs)
    if names:
        raise resubmission.conflict(job, names)


def _with_secrets(job: Job, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the job's own values where clients only see placeholders."""
    trial = document.get("trial")
    variables = trial.get("environment_variables") if isinstance(trial, Mapping) else None
    if not isinstance(trial, Mapping) or not isinstance(variables, Mapping):
        return dict(document)
    stored = (job.document.get("trial") or {}).get("environment_variables") or {}
    filled = {
        name: stored.get(name, value) if value == secret_variables.HIDDEN else value
        for name, value in variables.items()
    }
    return {**document, "trial": {**trial, "environment_variables": filled}}


def _with_own_settings(stored: SweepSpec, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with those of the sweep's own settings that it does not have."""
    settings = {name: text for name, text in stored.properties.items() if name.startswith(_OWN)}
    return {**document, "properties": {**settings, **(document.get("properties") or {})}}


def _search_of(spec: SweepSpec) -> dict[str, Any]:
    """How a sweep searches, by the keys of its file."""
    return {
        "search_space": spec.space,
        "sampling_algorithm": spec.sampling,
        "objective": spec.objectives,
        "early_termination": _sent(spec.early_termination),
        "limits": spec.limits,
        "warm_start": spec.warm_start,
    }


def _sent(policy: Policy | None) -> Policy | None:
    """The policy with what Azure's interface has of it."""
    if isinstance(policy, TruncationSelection):
        return replace(policy, exclude_finished_jobs=False)
    return policy


def _trial_of(job: Job, spec: SweepSpec, stored: SweepSpec) -> dict[str, Any]:
    """The file of one trial, with parameters that the stored sweep may have."""
    trial = replace(spec, name=job.name, display_name="")
    return trial.trial_document(0, trials.example(stored.space))
