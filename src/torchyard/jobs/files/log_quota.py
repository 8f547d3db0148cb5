"""How much of what a job prints is kept.

Owns: taking a piece of a log, the last line of one that is cut, telling the user.
Leaves: the bytes to records/logs.py, the property to spec/own_properties.py.
Always: the job itself goes on; a cut log says so at its end, and the job says it once.
"""

from __future__ import annotations

from typing import Any

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.jobs import actions
from torchyard.jobs.records import progress, store
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.logs import LogGap, Logs
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices
from torchyard.jobs.spec import own_properties


def answer(
    services: FileServices, job: Job, attempt: int, path: str, offset: int, content: bytes
) -> tuple[int, dict[str, Any]]:
    """Take a piece of a log; the HTTP status and the body that its sender goes on by.

    Args:
        attempt: its number; 0 for a run without attempts.
    """
    try:
        size = append(services.logs, job, attempt, path, offset, content)
    except LogGap as gap:
        return gap.http_status, {**gap.to_json(), "size": gap.size_bytes}
    if size < 0:
        tell(services.db, services.clock, job)
    services.signals.notify(actions.job_key(job))
    return 200, {"size": size} if size >= 0 else {"size": offset, "full": True}


def append(logs: Logs, job: Job, attempt: int, path: str, offset: int, content: bytes) -> int:
    """As `Logs.append`; -1 when the log is cut and takes no more."""
    quota_mb = own_properties.log_quota_mb(job.properties)
    return logs.append_within(
        job.workspace,
        job.name,
        attempt,
        path,
        offset,
        content,
        quota_mb << 20,
        f"[torchyard] {_said(quota_mb)}\n".encode(),
    )


def tell(db: Database, clock: Clock, job: Job) -> None:
    """A notice on the job, once."""
    message = _said(own_properties.log_quota_mb(job.properties))
    with db.read() as connection:
        if message in notices_of(store.events_after(connection, job.id, 0)):
            return
    with db.write() as connection:
        progress.notice_once(connection, job, message, clock.now())


def _said(quota_mb: int) -> str:
    return f"logs beyond {quota_mb:,} MB are dropped; raise `{own_properties.LOG_QUOTA}`"
