"""Rows of jobs of further types, for the packages that serve them.

Owns: adding such a job, finding those that live, beginning, ending and reopening them.
Leaves: what they are to those packages (see `JobType`), moves to records/progress.py.
Always: runs inside the caller's transaction; such a job holds no nodes and no attempts, and is
never seen as queued, so that nothing of the scheduler takes it up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from torchyard.jobs.records import progress, store
from torchyard.jobs.records.job_events import StatusChanged
from torchyard.jobs.records.types import ENDED, Job, JobError, NewJob, Status
from torchyard.workspaces import rights

_LIVE = [status for status in Status if status not in ENDED]
# Along the table of moves, in one transaction.
_TO_RUNNING = (Status.QUEUED, Status.STARTING, Status.RUNNING)


def add(connection: Connection, new: NewJob, notices: Sequence[str]) -> Job:
    """
    Raises:
        Forbidden: its owner may run nothing in the workspace any more.
        IntegrityError: its name is taken.
    """
    rights.refuse_unable(connection, new.owner, new.workspace)
    job = store.add_job(connection, new)
    progress.created(connection, job, notices)
    return job


def live_ids(connection: Connection, type: str) -> list[int]:
    """Of the jobs of a type that have not ended, in the order of their submission."""
    return [job.id for job in store.jobs_in(connection, _LIVE, type)]


def by_id(connection: Connection, job_ids: Collection[int]) -> dict[int, Job]:
    """Without those that were deleted."""
    return store.jobs_by_id(connection, list(job_ids))


def begin(connection: Connection, job: Job, now: datetime) -> Job:
    """Move a new job to Running."""
    for status in _TO_RUNNING:
        job = progress.move(connection, job, status, now)
    return job


def request_cancel(
    connection: Connection, job: Job, why: JobError | None, now: datetime
) -> Job | None:
    """Move a job to CancelRequested; None when it has ended, or is there already."""
    current = store.job_by_id(connection, job.id)
    if current.status.ended or current.status is Status.CANCEL_REQUESTED:
        return None
    if why is not None:
        store.change_job(connection, job.id, error=vars(why))
    return progress.move(connection, current, Status.CANCEL_REQUESTED, now)


def end(
    connection: Connection, job: Job, status: Status, error: JobError | None, now: datetime
) -> None:
    """End a job whose children have all ended, unless it has."""
    current = store.job_by_id(connection, job.id)
    if not current.status.ended:
        progress.end(connection, current, status, now, error=error)


def reopen(connection: Connection, job: Job, now: datetime) -> Job:
    """Let an ended job go on: there is more for it to do."""
    current = store.job_by_id(connection, job.id)
    assert current.status.ended and not current.has_ranks, current.name
    store.change_job(
        connection,
        job.id,
        status=Status.RUNNING.value,
        ended_at=None,
        duration_s=None,
        error=None,
    )
    store.add_event(connection, job.id, now, StatusChanged(Status.RUNNING))
    return store.job_by_id(connection, job.id)


def set_error(connection: Connection, job: Job, error: JobError) -> None:
    """Note why a job ends, before its children have ended."""
    store.change_job(connection, job.id, error=vars(error))


def add_properties(connection: Connection, job: Job, properties: Mapping[str, str]) -> Job:
    """Set properties that the server keeps; what else the job has stays."""
    current = store.job_by_id(connection, job.id)
    store.change_job(connection, job.id, properties={**current.properties, **properties})
    return store.job_by_id(connection, job.id)


def tell(connection: Connection, job: Job, message: str, now: datetime) -> None:
    """Tell the user something about how the job is run."""
    progress.notice(connection, job, message, now)
