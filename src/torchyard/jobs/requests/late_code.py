"""A job whose code comes after it: SDK v1 sends the snapshot of a run on the target `local` last.

Owns: the job's wait for its code.
Leaves: which snapshot that is to azureml/sdk_v1.
Always: the job's environment is built meanwhile, and it holds no node. One whose client never sends
the code starts without it in the end, and fails by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from torchyard.jobs.records import store
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import submission
from torchyard.jobs.scheduling import pausing
from torchyard.jobs.services import Services
from torchyard.workspaces.types import Identity

# A client sends up to 300 MB.
_WAIT = timedelta(hours=1)


def create(
    services: Services, workspace: str, document: Mapping[str, Any], identity: Identity
) -> Job:
    """As `submission.create`, of a job that waits for `add`."""

    def wait(connection: Connection, job: Job) -> None:
        store.change_job(connection, job.id, retry_at=services.clock.now() + _WAIT)

    job, _ = submission.create(services, workspace, document, identity, wait)
    return job


def is_awaited(job: Job) -> bool:
    waits = job.retry_at is not None and job.attempt == 0 and not job.status.ended
    return waits and job.has_ranks and not job.document.get("code")


def add(services: Services, job: Job, snapshot_id: str) -> None:
    """Let a job that waits for its code have it, and nodes."""
    document = {**job.document, "code": f"snapshot:{snapshot_id}"}
    pausing.go_on(
        services, job, lambda connection: store.change_job(connection, job.id, spec=document)
    )
