"""Pause a running job, and let it go on later in the same run.

Owns: the pause, by which a job waits in the queue until it is promoted.
Leaves: stopping an attempt as for a preemption to preemption.py.
Always: a paused job holds no nodes; what the caller notes with the pause is stored with it.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from torchyard.jobs.actions import job_key
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.types import PAUSED_UNTIL, Job, Status
from torchyard.jobs.scheduling import preemption
from torchyard.jobs.services import RecordServices, Services

_STOPPING = (Status.CANCEL_REQUESTED, Status.FINALIZING)


def pause(
    services: RecordServices, job: Job, reason: str, also: Callable[[Connection], None]
) -> None:
    """Let a job wait from now on; `stop` ends its attempt."""
    with services.db.write() as connection:
        store.change_job(connection, job.id, retry_at=PAUSED_UNTIL)
        also(connection)
    stop(services, job, reason)


def stop(services: RecordServices, job: Job, reason: str) -> None:
    """Stop the attempt of a paused job, if one runs; again after a server was killed between."""
    if job.status.ended or job.status in _STOPPING:
        return
    with services.db.read() as connection:
        attempts = attempt_store.attempts_of(connection, job.id)
    for attempt in attempts:
        if attempt.ended_at is None:
            preemption.request_stop(services, attempt.id, reason, takes_nodes=False)


def go_on(services: Services, job: Job, also: Callable[[Connection], None]) -> None:
    """Let a paused job have nodes again."""
    with services.db.write() as connection:
        store.change_job(connection, job.id, retry_at=None)
        also(connection)
    services.signals.notify(job_key(job))
    services.wakeup.set()
