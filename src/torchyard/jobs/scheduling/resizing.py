"""Stop attempts of elastic jobs, which go on with another number of nodes.

Owns: when an attempt has run long enough for that, its stop request.
Leaves: who gets more nodes to growing.py, who gives some away to shrinking.py, the end of the
attempt and its way back into the queue to attempts/endings.py, SIGTERM and the grace to the worker.
Always: what stops an attempt already goes before.
"""

from __future__ import annotations

from torchyard.base.clock import Clock
from torchyard.jobs.actions import STOP, attempt_key, job_key
from torchyard.jobs.attempts import losses
from torchyard.jobs.attempts.root_cause import RESIZED
from torchyard.jobs.records import attempt_store, progress, store
from torchyard.jobs.records.types import Attempt, Job, JobError, Status
from torchyard.jobs.services import Services
from torchyard.jobs.spec import elastic
from torchyard.shared.plurals import plural

_HINT = "the job goes on in the same run: save checkpoints, and load the last one at the start"


def is_due(clock: Clock, job: Job, attempt: Attempt) -> bool:
    """Whether the attempt trains, and has done so for the job's pause."""
    sizes = elastic.read(job.properties)
    if sizes is None:
        return False
    if job.status is not Status.RUNNING or attempt.order or attempt.ended_at is not None:
        return False
    ran_s = (clock.now() - attempt.created_at).total_seconds()
    return ran_s >= sizes.grow_after_s


def stop(services: Services, attempt: Attempt, node_count: int, because: str) -> None:
    """Ask an attempt to stop, unless something else is stopping it already."""
    with services.db.write() as connection:
        services.membership.check(connection)
        current = attempt_store.attempt_by_id(connection, attempt.id)
        if current is None or current.ended_at is not None or current.order:
            return
        job = store.job_by_id(connection, attempt.job_id)
        if job.status is not Status.RUNNING:
            return
        nodes = f"{node_count} {plural('node', node_count)}"
        error = JobError(
            RESIZED,
            f"attempt {attempt.number} is stopped to go on with {nodes}: {because}",
            _HINT,
            {losses.BECAUSE: because, losses.NEXT_NODES: node_count},
        )
        attempt_store.change_attempt(
            connection, attempt.id, order=STOP, order_reason=RESIZED, error=vars(error)
        )
        # What was lost before may be used again.
        store.change_job(connection, job.id, avoided_slots=None)
        progress.notice(connection, job, error.message, services.clock.now())
    services.signals.notify(job_key(job))
    services.signals.notify(attempt_key(attempt.id))
