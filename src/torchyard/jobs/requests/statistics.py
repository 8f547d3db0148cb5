"""How many jobs there are in all workspaces, for the server's metrics.

Owns: the counts, and how old the queue is.
Leaves: SQL to records/store.py, names and text of the metrics to app/monitoring/.
Always: nothing that belongs to one person or one workspace is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.base.db import Database
from torchyard.jobs.records import store
from torchyard.jobs.records.types import ENDED, Status
from torchyard.jobs.services import RecordServices

_LIVE = tuple(status for status in Status if not status.ended)


@dataclass(frozen=True)
class Queue:
    """The jobs that wait for nodes; `oldest_s` is the longest time since a submission."""

    jobs: int
    nodes: int
    oldest_s: float


def live_jobs(services: RecordServices) -> Mapping[str, int]:
    """By status, 0 included; jobs that have not ended."""
    return _counted(services.db, _LIVE)


def ended_jobs(services: RecordServices) -> Mapping[str, int]:
    """By status; this reads an index of the whole history."""
    return _counted(services.db, tuple(status for status in Status if status in ENDED))


def queue(services: RecordServices) -> Queue:
    with services.db.read() as connection:
        jobs, nodes, oldest = store.queue_size(connection)
    waited = (services.clock.now() - oldest).total_seconds() if oldest is not None else 0.0
    return Queue(jobs, nodes, max(0.0, waited))


def _counted(db: Database, statuses: tuple[Status, ...]) -> Mapping[str, int]:
    with db.read() as connection:
        counts = store.count_by_status(connection, statuses)
    return {status.value: counts.get(status, 0) for status in statuses}
