"""A job that exists, asked for again.

Owns: whether what is asked for is that job, and what of it may differ.
Leaves: new jobs to submission.py, changing what may change to jobs/actions.py.
Always: two documents are one job when they say the same of everything but words about it, however
it is written: defaults left out or not, references pinned or not, secrets shown or hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from torchyard.base.errors import Conflict, TorchyardError
from torchyard.jobs.records import store
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import pinning
from torchyard.jobs.services import Services
from torchyard.jobs.spec import job_spec, secrets
from torchyard.jobs.spec.inputs import Input
from torchyard.jobs.spec.job_spec import JobSpec

# Words about a job; what they become is told by jobs/actions.py.
_WORDS = ("name", "display_name", "description", "tags", "properties", "notices")
# What some clients read and do not send back.
_FORGOTTEN = ("communication_backend", "parent_job_name", "job_tier", "priority")
_DEFAULTS = {field.name: field.default for field in fields(JobSpec)}


def require_same(services: Services, job: Job, document: Mapping[str, Any]) -> None:
    """
    Raises:
        InvalidSpec: the document is not a job's.
        Conflict: it is another job's, and which keys say so.
    """
    request = job_spec.read(_with_secrets(job, document))
    stored = job.spec
    ignored = {name: getattr(stored, name) for name in _WORDS}
    for name in _FORGOTTEN:
        if getattr(request, name) == _DEFAULTS[name]:
            ignored[name] = getattr(stored, name)
    inputs = {
        name: _pinned(services, job, job_input, stored.inputs.get(name))
        for name, job_input in request.inputs.items()
    }
    request = replace(request, **ignored, inputs=inputs)
    differing = [
        field.name
        for field in fields(JobSpec)
        if getattr(request, field.name) != getattr(stored, field.name)
    ]
    if "environment" in differing and _same_environment(services, job, request.environment):
        differing.remove("environment")
    if differing:
        raise Conflict(
            f"job `{job.name}` exists in workspace `{job.workspace}` with another content: "
            + ", ".join(f"`{name}`" for name in differing),
            "a job never changes but for its words: give this one another name, or none",
            code="job_exists",
            at=("name",),
        )


def _with_secrets(job: Job, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the job's own values where a client was shown none."""
    stored = job.document.get("environment_variables") or {}
    variables = document.get("environment_variables")
    if not isinstance(variables, Mapping):
        return dict(document)
    filled = {
        name: stored.get(name, value) if value == secrets.HIDDEN else value
        for name, value in variables.items()
    }
    return {**document, "environment_variables": filled}


def _pinned(services: Services, job: Job, job_input: Input, stored: Input | None) -> Input:
    if stored is None or job_input == stored or not job_input.path:
        return job_input
    try:
        pinned = pinning.pin(services, job.workspace, job.name, job_input)
    except TorchyardError:
        return job_input  # what it named is gone or another's by now
    return replace(job_input, path=pinned.path)


def _same_environment(services: Services, job: Job, environment: str | dict[str, Any]) -> bool:
    try:
        resolved = services.environments.resolver.resolve(environment, job.workspace)
    except TorchyardError:
        return False
    with services.db.read() as connection:
        return resolved.hash == store.environment_hash_of(connection, job.id)
