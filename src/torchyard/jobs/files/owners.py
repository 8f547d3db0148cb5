"""Whose a job or a run is.

Owns: the owner for questions of rights, canceling everything of one person.
Leaves: what an owner may do to workspaces/.
Always: a tracking client may call a run's user what it likes; the run is whose token made it.
"""

from __future__ import annotations

from torchyard.jobs import actions
from torchyard.jobs.records import store
from torchyard.jobs.records.types import ENDED, Job, Status
from torchyard.jobs.services import Services

MADE_BY = "torchyard.made_by"
_LIVE = [status for status in Status if status not in ENDED]


def of(job: Job) -> str:
    return job.properties.get(MADE_BY, job.owner)


def of_name(services: Services, workspace: str, name: str) -> str:
    """Empty when there is no such job."""
    with services.db.read() as connection:
        job = store.job_named(connection, workspace, name)
    return "" if job is None else of(job)


def cancel_all(services: Services, user: str) -> list[str]:
    """Cancel every job of a person that has not ended; as `workspace/job`."""
    with services.db.read() as connection:
        # A sweep first: it would start other trials for those that end.
        live = [
            job
            for type in (*services.job_types, "command")
            for job in store.jobs_in(connection, _LIVE, type)
        ]
    user_jobs = [job for job in live if of(job) == user]
    for job in user_jobs:
        actions.cancel(services, job.workspace, job.name)
    return [f"{job.workspace}/{job.name}" for job in user_jobs]
