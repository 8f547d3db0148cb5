"""Hand a job file to what serves its type.

Owns: which type a document is of.
Leaves: command jobs to submission.py, other types to what `Services.job_types` has for them.
Always: a type that nothing serves is refused as an invalid job file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base.errors import InvalidInput, InvalidSpec, NotFound, TorchyardError, nearest
from torchyard.jobs.records.types import COMMAND, Job
from torchyard.jobs.requests import submission
from torchyard.jobs.services import JobType, Services
from torchyard.jobs.spec import job_spec
from torchyard.workspaces.types import Identity


def check(
    services: Services, workspace: str, document: Any, *, uploaded: bool = True
) -> tuple[str, ...]:
    """Check a job file of any type; return notices.

    Args:
        uploaded: False accepts `local:` where a folder is yet to be uploaded.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    served = _serving(services, workspace, document)
    if served is not None:
        return served.check(services, workspace, document, uploaded)
    return submission.check(services, workspace, document, uploaded=uploaded).notices


def create(
    services: Services, workspace: str, document: Mapping[str, Any], identity: Identity
) -> tuple[Job, bool]:
    """Store a job of any type; see submission.create."""
    served = _serving(services, workspace, document)
    if served is not None:
        return served.create(services, workspace, document, identity)
    return submission.create(services, workspace, document, identity)


def _serving(services: Services, workspace: str, document: Any) -> JobType | None:
    """None for command jobs, and for what is not a job file at all."""
    if not isinstance(document, Mapping):
        return None
    try:
        kind = job_spec.type_of(document)
    except InvalidSpec as error:
        error.add_others(_faults_of_nearest_type(services, workspace, document))
        raise
    return services.job_types.get(kind)


def _faults_of_nearest_type(
    services: Services, workspace: str, document: Mapping[str, Any]
) -> list[TorchyardError]:
    """What else is wrong with a file whose type is misspelt, or that of an older schema."""
    guess = nearest(str(document["type"]), (COMMAND, *services.job_types))
    if not guess:
        return []
    try:
        check(services, workspace, {**document, "type": guess}, uploaded=False)
    except (InvalidInput, NotFound) as error:
        return [error, *error.others]
    return []
