"""Compare an existing job with a document that is submitted again.

Owns: whether the document is that job's, and what may differ.
Leaves: new jobs to submission.py, changing what may change to jobs/actions.py.
Always: two documents are the same job when they agree on everything but its labels, whether
defaults are left out or not, references are pinned or not, secrets are shown or hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from torchyard.base.documents import secret_variables
from torchyard.base.errors import Conflict, TorchyardError
from torchyard.jobs.records import store
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import pinning
from torchyard.jobs.services import FileServices
from torchyard.jobs.spec import job_spec
from torchyard.jobs.spec.inputs import Input
from torchyard.jobs.spec.job_spec import JobSpec

# Labels of a job, which jobs/actions.py may change.
_LABELS = ("name", "display_name", "description", "tags", "properties", "notices")
# Fields that some clients read and do not send back.
_FORGOTTEN = ("communication_backend", "parent_job_name", "job_tier", "priority")
_DEFAULTS = {field.name: field.default for field in fields(JobSpec)}


def require_same(services: FileServices, job: Job, document: Mapping[str, Any]) -> None:
    """
    Raises:
        InvalidSpec: the document is not a job's.
        Conflict: it differs from the job; the message names the keys.
    """
    stored, request = (job_spec.read(each) for each in (job.document, _with_secrets(job, document)))
    names = differing(services, job, stored, request)
    if names:
        raise conflict(job, names)


def conflict(job: Job, names: Sequence[str]) -> Conflict:
    """The refusal of a document that differs from the job's in these keys."""
    return Conflict(
        f"job `{job.name}` exists in workspace `{job.workspace}` with another content: "
        + ", ".join(f"`{name}`" for name in names),
        "only names, descriptions and tags of a job can change: use another name, or none",
        code="job_exists",
        at=("name",),
    )


def differing(services: FileServices, job: Job, stored: JobSpec, request: JobSpec) -> list[str]:
    """The fields in which a request is another job.

    Args:
        job: whose workspace, name and environment count; a sweep with the specs of its trials.
    """
    ignored = {name: getattr(stored, name) for name in _LABELS}
    for name in _FORGOTTEN:
        if getattr(request, name) == _DEFAULTS[name]:
            ignored[name] = getattr(stored, name)
    inputs = {
        name: pinned(services, job, job_input, stored.inputs.get(name))
        for name, job_input in request.inputs.items()
    }
    request = replace(request, **ignored, inputs=inputs)
    names = [
        field.name
        for field in fields(JobSpec)
        if getattr(request, field.name) != getattr(stored, field.name)
    ]
    if "environment" in names and _same_environment(services, job, request.environment):
        names.remove("environment")
    return names


def _with_secrets(job: Job, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the job's own values where clients only see placeholders."""
    stored = job.document.get("environment_variables") or {}
    variables = document.get("environment_variables")
    if not isinstance(variables, Mapping):
        return dict(document)
    filled = {
        name: stored.get(name, value) if value == secret_variables.HIDDEN else value
        for name, value in variables.items()
    }
    return {**document, "environment_variables": filled}


def pinned(services: FileServices, job: Job, job_input: Input, stored: Input | None) -> Input:
    """An input of a request, pinned as that of the stored job was."""
    if stored is None or job_input == stored or not job_input.path:
        return job_input
    try:
        pinned = pinning.pin(services, job.workspace, job.name, job_input)
    except TorchyardError:
        return job_input  # what it named is gone or another's by now
    return replace(job_input, path=pinned.path)


def _same_environment(services: FileServices, job: Job, environment: str | dict[str, Any]) -> bool:
    try:
        resolved = services.environments.resolver.resolve(environment, job.workspace)
    except TorchyardError:
        return False
    with services.db.read() as connection:
        return resolved.hash == store.environment_hash_of(connection, job.id)
