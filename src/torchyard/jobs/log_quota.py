"""How much of what a job prints is kept.

Owns: the last line of a log that is cut, telling the user.
Leaves: the bytes to logs.py, the property to own_properties.py.
Always: the job itself goes on; a cut log says so at its end, and the job says it once.
"""

from __future__ import annotations

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.jobs import own_properties, progress, store
from torchyard.jobs.logs import Logs
from torchyard.jobs.types import Attempt, Event, Job


def append(logs: Logs, attempt: Attempt, job: Job, path: str, offset: int, content: bytes) -> int:
    """As `Logs.append`; -1 when the log is cut and takes no more."""
    quota_mb = own_properties.log_quota_mb(job.properties)
    return logs.append_within(
        attempt.workspace,
        attempt.job_name,
        attempt.number,
        path,
        offset,
        content,
        quota_mb << 20,
        f"[torchyard] {_said(quota_mb)}\n".encode(),
    )


def tell(db: Database, clock: Clock, job: Job) -> None:
    """A notice on the job, once."""
    said = _said(own_properties.log_quota_mb(job.properties))
    with db.read() as connection:
        if _is_told(store.events_after(connection, job.id, 0), said):
            return
    with db.write() as connection:
        if not _is_told(store.events_after(connection, job.id, 0), said):
            progress.notice(connection, job, said, clock.now())


def _is_told(events: list[Event], said: str) -> bool:
    return any(event.kind == "notice" and event.body.get("message") == said for event in events)


def _said(quota_mb: int) -> str:
    return f"logs beyond {quota_mb:,} MB are dropped; raise `{own_properties.LOG_QUOTA}`"
