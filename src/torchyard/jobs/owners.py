"""Whose a job or a run is, and whom it refuses.

Owns: the owner for questions of rights, stopping what runs for people who may run nothing any more.
Leaves: who may change only their own to workspaces/permissions.py, who may run something to
workspaces/rights.py.
Always: a tracking client may call a run's user what it likes; the run is whose token made it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from torchyard.base.db import Database
from torchyard.jobs import actions
from torchyard.jobs.records import store
from torchyard.jobs.records.types import COMMAND, ENDED, Job, JobError, Status
from torchyard.jobs.services import RecordServices, Services, ServicesOf
from torchyard.workspaces import access, rights
from torchyard.workspaces.guarded_routes import Person
from torchyard.workspaces.types import Identity

MADE_BY = "torchyard.made_by"
_LIVE = [status for status in Status if status not in ENDED]


def of(job: Job) -> str:
    return job.properties.get(MADE_BY, job.owner)


def of_name(db: Database, workspace: str, name: str) -> str:
    """Empty when the job does not exist."""
    with db.read() as connection:
        job = store.job_named(connection, workspace, name)
    return "" if job is None else of(job)


def refuse_foreign(identity: Identity, job: Job, noun: str = "job") -> None:
    """
    Raises:
        Forbidden: the identity may change its own jobs only, and this is another's.
    """
    access.refuse_foreign(identity, of(job), f"{noun} `{job.name}`")


def refuse_foreign_names(
    db: Database, identity: Identity, workspace: str, *names: str, noun: str = "job"
) -> None:
    """As `refuse_foreign`; names of no job are left to what uses them."""
    for name in names if identity.own_only else ():
        access.refuse_foreign(identity, of_name(db, workspace, name), f"{noun} `{name}`")


def get_own(services: RecordServices, workspace: str, name: str, identity: Identity) -> Job:
    """A job that the identity may change.

    Raises:
        NotFound: the workspace has no job of this name.
        Forbidden: it is another's.
    """
    job = actions.get(services, workspace, name)
    refuse_foreign(identity, job)
    return job


def _own_job(services: ServicesOf, workspace: str, name: str, identity: Person) -> Job:
    return get_own(services, workspace, name, identity)


OwnJob = Annotated[Job, Depends(_own_job)]
"""The job that a route's path names, which the caller may change."""


def stop_unable(services: Services, user: str = "") -> list[str]:
    """Stop every job whose owner may run nothing in its workspace any more; as `workspace/job`.

    Their ranks get no grace period.

    Args:
        user: only this person's; everybody's when empty.
    """
    with services.db.read() as connection:
        pairs = store.owners_of_live(connection)
        unable = set(pairs) - rights.able(connection, pairs)
        unable = {pair for pair in unable if user in ("", pair[1])}
        if not unable:
            return []
        # A sweep first: it would start other trials for those that end.
        live = [
            job
            for type in (*services.job_types, COMMAND)
            for job in store.jobs_in(connection, _LIVE, type)
        ]
    stopped = [job for job in live if (job.workspace, job.owner) in unable]
    for job in stopped:
        # Canceling again wakes the scheduler, which asks again.
        if user or job.status is not Status.CANCEL_REQUESTED:
            refusal = rights.refusal(job.owner, job.workspace)
            why = JobError(refusal.code, refusal.message, refusal.hint)
            actions.cancel(services, job.workspace, job.name, why, kill=True)
    return [f"{job.workspace}/{job.name}" for job in stopped]
