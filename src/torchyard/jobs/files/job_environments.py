"""The environment of a job, as a page shows it.

Owns: joining what was pinned with what was built.
Leaves: builds to environments/.
Always: no secret of the job is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from torchyard.base.db import Database
from torchyard.base.errors import NotFound
from torchyard.environments import copying
from torchyard.environments import to_json as environments_json
from torchyard.environments.types import EnvironmentSpec, from_json
from torchyard.jobs import actions
from torchyard.jobs.records import job_masking, store
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices, RecordServices


def to_json(services: FileServices, job: Job) -> dict[str, Any]:
    """`spec` is what was pinned; beside it the build's state, packages and notices.

    Raises:
        NotFound: the run has no environment.
    """
    spec = _pinned(services.db, job)
    body = {"ref": spec.ref, "spec": spec.to_json()}
    body |= environments_json.build_json(services.environments, spec)
    return job_masking.masked(job, body)


def export(services: FileServices, job: Job, form: str) -> dict[str, Any]:
    """The environment as a file for use elsewhere, from what the job was pinned to.

    Raises:
        NotFound: the run has no environment.
        InvalidInput: the form does not exist, or can't describe the environment.
    """
    spec = _pinned(services.db, job)
    image = spec.image
    if image is not None and image.dockerfile and form == "dockerfile":
        sources = services.environments.images.sources(job.workspace)
        body = {
            "file": PurePosixPath(image.dockerfile).name,
            "text": sources.text(image.context, image.dockerfile),
            "source": "definition",
            "notices": list(spec.notices),
            "name": spec.ref or job.name,
        }
    else:
        name = spec.ref or job.name
        body = copying.export_spec(services.environments, spec, form, name)
    return job_masking.masked(job, body)


def reference_or_definition(db: Database, job: Job) -> str | dict[str, Any]:
    """The environment as a job file names it, for what the job made; empty for a run without one.

    A reference has the version that was pinned; an inline definition has no secrets.
    """
    with db.read() as connection:
        pinned = store.environment_of(connection, job.id)
    if not pinned:
        return ""
    ref = from_json(pinned).ref
    if ref:
        return f"azureml:{ref}"
    written = job.document.get("environment")
    if not isinstance(written, Mapping):
        return str(written or "")
    return job_masking.masked(job, dict(written))


def named_by(services: RecordServices, workspace: str, job: str) -> str | dict[str, Any]:
    """As `reference_or_definition`, by the job's name; empty where no job has it."""
    if not job:
        return ""
    try:
        return reference_or_definition(services.db, actions.get(services, workspace, job))
    except NotFound:
        return ""


def _pinned(db: Database, job: Job) -> EnvironmentSpec:
    with db.read() as connection:
        pinned = store.environment_of(connection, job.id)
    if not pinned:
        raise NotFound(
            f"`{job.name}` has no environment of torchyard's", "it was run outside of any job"
        )
    return from_json(pinned)
