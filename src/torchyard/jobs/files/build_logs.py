"""The log of the build that a job waited for, among the job's own files.

Owns: its path there, which part of an environment's log it is.
Leaves: showing it line by line while it grows to requests/streams.py.
Always: a job that did not wait for a build has no such file; nothing fails for want of it.
"""

from __future__ import annotations

import logging

from torchyard.base.errors import NotFound, TorchyardError
from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.environments.types import from_json as environment_from_json
from torchyard.jobs.files import artifacts
from torchyard.jobs.records import store
from torchyard.jobs.records.job_events import build_log_offset
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.services import FileServices

# Azure ML's name for it.
PATH = "azureml-logs/20_image_build_log.txt"
_MOST_BYTES = 8 << 20
_log = logging.getLogger(__name__)


def is_there(services: FileServices, job: Job) -> bool:
    """Whether the job has such a file; while it waits, with what the build has said by now."""
    if job.has_ranks and job.status is Status.PREPARING:
        keep(services, job)
        with services.db.read() as connection:
            moved_on = store.job_by_id(connection, job.id).status is not Status.PREPARING
        if moved_on:
            keep(services, job)  # what was kept last may have been overwritten by an earlier part
    try:
        services.datastores.file(job.workspace, ARTIFACT_STORE, f"{artifacts_of(job.name)}/{PATH}")
    except NotFound:
        return False
    return True


def keep(services: FileServices, job: Job) -> None:
    """Copy what the build has said since the job began to wait for it."""
    with services.db.read() as connection:
        events = store.events_after(connection, job.id, 0)
        environment = environment_from_json(store.environment_of(connection, job.id))
    offsets = [offset for event in events if (offset := build_log_offset(event)) is not None]
    if not offsets:
        return
    try:
        with open(services.environments.folders.log_path(environment.hash), "rb") as log:
            log.seek(offsets[-1])
            content = log.read(_MOST_BYTES)
        if content:
            with artifacts.writing(services.datastores, job, PATH) as file:
                file.write(content)
    except (OSError, TorchyardError) as error:
        _log.warning("the build log of job %s is not kept: %s", job.name, error)
