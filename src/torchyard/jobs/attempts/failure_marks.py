"""Jobs that a client or their own script marks as failed, as SDK v1's `run.fail()` does.

Owns: what becomes of such a job, and of the error that was reported.
Leaves: ending it to endings.py, protocols to azureml/.
Always: a reported error never hides the exception that a rank died of.
"""

from __future__ import annotations

from dataclasses import replace

from torchyard.base.errors import Conflict
from torchyard.jobs import actions
from torchyard.jobs.records import attempt_store, job_masking, progress, store
from torchyard.jobs.records.row_changes import AttemptColumns
from torchyard.jobs.records.types import ENDED, Attempt, Job, JobError, Status
from torchyard.jobs.services import Services

# Why the ranks of an attempt are stopped; see `Attempt.order_reason`.
MARKED_FAILED = "marked_failed"
_REPORTED = "reported"
_NO_REASON = JobError(
    "UserError",
    "the run was marked as failed by `run.fail()`",
    "give the reason as `run.fail(error_details=…)`",
)


def mark(
    services: Services, workspace: str, name: str, error: JobError | None, *, stop: bool
) -> Job:
    """Have a job end as Failed, as a client or its own script reports.

    Args:
        error: None for what was reported before.
        stop: stop its ranks, too; otherwise it fails when they end, even if all succeed. One that
            is not running fails at once.

    Raises:
        Conflict: it has completed.
    """
    job = actions.get(services, workspace, name)
    now = services.clock.now()
    with services.db.write() as connection:
        job = store.job_by_id(connection, job.id)
        if job.status is Status.COMPLETED:
            raise Conflict(
                f"job `{name}` has completed and can't be marked as failed",
                "fail it in its script, or mark it with a tag",
            )
        if job.status in ENDED or job.status is Status.CANCEL_REQUESTED:
            return job
        tries = attempt_store.attempts_of(connection, job.id)
        running = [attempt for attempt in tries if attempt.ended_at is None]
        error = error or (reported(running[-1]) if running else None) or _NO_REASON
        error = replace(error, details={**error.details, _REPORTED: True})
        values: AttemptColumns = {"error": job_masking.masked(job, vars(error))}
        if running:
            if stop:
                values |= {"order": actions.STOP, "order_reason": MARKED_FAILED}
            attempt_store.change_attempt(connection, running[-1].id, **values)
        else:
            progress.end(connection, job, Status.FAILED, now, error=error)
        job = store.job_by_id(connection, job.id)
    services.signals.notify(actions.job_key(job))
    for attempt in running:
        services.signals.notify(actions.attempt_key(attempt.id))
    services.wakeup.set()
    return job


def reported(attempt: Attempt) -> JobError | None:
    """The error that the attempt's script, or a client, reported."""
    error = attempt.error
    return error if error is not None and error.details.get(_REPORTED) else None


def explained(error: JobError, reported: JobError | None) -> JobError:
    """The error of a failed rank; what its script reported says more than a plain exit code."""
    if reported is None or error.details.get("exception"):
        return error
    details = {**error.details, **reported.details}
    return replace(error, code=reported.code, message=reported.message, details=details)
