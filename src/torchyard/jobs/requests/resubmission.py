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

# Words about a job; what they become is told by jobs/actions.py.
_WORDS = ("name", "display_name", "description", "tags", "properties", "notices")
# What some clients read and do not send back.
_FORGOTTEN = ("communication_backend", "parent_job_name", "job_tier", "priority")
_DEFAULTS = {one.name: one.default for one in fields(job_spec.JobSpec)}


def require_same(services: Services, job: Job, document: Mapping[str, Any]) -> None:
    """
    Raises:
        InvalidSpec: the document is none.
        Conflict: it is another job's, and which keys say so.
    """
    asked = job_spec.read(_with_secrets(job, document))
    known = job_spec.read(job.spec)
    words = {name: getattr(known, name) for name in _WORDS}
    for name in _FORGOTTEN:
        if getattr(asked, name) == _DEFAULTS[name]:
            words[name] = getattr(known, name)
    asked = replace(asked, **words, inputs=_pinned(services, job, asked.inputs, known.inputs))
    differing = [
        one.name
        for one in fields(job_spec.JobSpec)
        if getattr(asked, one.name) != getattr(known, one.name)
    ]
    if "environment" in differing and _same_environment(services, job, asked.environment):
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
    own = job.spec.get("environment_variables") or {}
    given = document.get("environment_variables")
    if not isinstance(given, Mapping):
        return dict(document)
    filled = {
        name: own.get(name, value) if value == secrets.HIDDEN else value
        for name, value in given.items()
    }
    return {**document, "environment_variables": filled}


def _pinned(
    services: Services, job: Job, asked: Mapping[str, Input], known: Mapping[str, Input]
) -> dict[str, Input]:
    return {name: _input(services, job, one, known.get(name)) for name, one in asked.items()}


def _input(services: Services, job: Job, asked: Input, known: Input | None) -> Input:
    if known is None or asked == known or not asked.path:
        return asked
    try:
        return replace(asked, path=pinning.pin(services, job.workspace, job.name, asked).path)
    except TorchyardError:
        return asked  # what it named is gone or another's by now


def _same_environment(services: Services, job: Job, asked: str | dict[str, Any]) -> bool:
    try:
        wanted = services.environments.resolver.resolve(asked, job.workspace).hash
    except TorchyardError:
        return False
    with services.db.read() as connection:
        return wanted == store.environment_hash_of(connection, job.id)
