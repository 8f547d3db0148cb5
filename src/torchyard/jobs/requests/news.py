"""What has changed of jobs, for those who follow many of them at once.

Owns: reading rows of changed jobs, how far metrics and logs of a followed job have come.
Leaves: who follows what, and when to look, to web/; the content itself to the routes of jobs.
Always: reading is bounded by what is followed, not by how many follow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.history import chart_store
from torchyard.jobs.records import store
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests.answer_types import JobRow, ListColumns
from torchyard.jobs.requests.job_queries import waiting_of
from torchyard.jobs.requests.to_json import summary_json
from torchyard.jobs.services import FileServices, RecordServices, Services
from torchyard.shared.record_rules import number_json

_JOB = "job/"


@dataclass(frozen=True)
class Row:
    """A job as lists show it; `summary` is None where it was deleted. `last_event` is the number of
    its last event, which changes with its stages and notices.
    """

    job_id: int
    workspace: str
    name: str
    last_event: int
    summary: JobRow | None


@dataclass
class Progress:
    """How far a job has come: by key (count, step, timestamp, value), by log its size in bytes.

    A log is known by its attempt and its path as users name it.
    """

    name: str
    has_ended: bool
    metrics: dict[str, tuple[int, int, int, float]] = field(default_factory=dict)
    logs: dict[tuple[int, str], int] = field(default_factory=dict)


def job_id_of(key: str) -> int | None:
    """The job that a key of `Signals` is of; None where it is not a job's."""
    number = key.removeprefix(_JOB)
    return int(number) if number != key and number.isdecimal() else None


def rows(services: Services, job_ids: Sequence[int]) -> list[Row]:
    """Those of the jobs that there are, and whether they still count."""
    with services.db.read() as connection:
        jobs = store.jobs_by_id(connection, job_ids)
        last_events = store.last_events(connection, list(jobs))
    reasons = waiting_of(services, list(jobs.values()))
    return [
        _row(job, last_events.get(job.id, 0), reason)
        for job, reason in zip(jobs.values(), reasons, strict=True)
    ]


def progress(services: FileServices, job_id: int, with_metrics: bool = True) -> Progress | None:
    """How far a job has come; None where it is gone.

    Args:
        with_metrics: read them, too; only logs otherwise.
    """
    with services.db.read() as connection:
        job = store.jobs_by_id(connection, [job_id]).get(job_id)
        if job is None:
            return None
        metrics = chart_store.newest(connection, job_id) if with_metrics else {}
    logs = {
        (log.attempt, artifacts.displayed_path(job, log)): log.size_bytes
        for log in services.logs.list(job.workspace, job.name)
    }
    return Progress(job.name, job.status.ended, metrics, logs)


def followed_ids(
    services: RecordServices, workspace: str, names: Sequence[str]
) -> tuple[frozenset[int], tuple[str, ...]]:
    """The jobs of these names, and the names of which there is none."""
    jobs = {name: actions.find_by_name(services.db, workspace, name) for name in names}
    ids = frozenset(job.id for job in jobs.values() if job is not None)
    return ids, tuple(name for name, job in jobs.items() if job is None)


def new_metrics(old: Progress, new: Progress) -> list[dict[str, Any]]:
    """The keys with new points, each with its latest one."""
    return [
        {
            "key": key,
            "count": point[0],
            "step": point[1],
            "timestamp": point[2],
            "value": number_json(point[3]),
        }
        for key, point in new.metrics.items()
        # Not the value: NaN differs from itself.
        if point[:3] != old.metrics.get(key, (0, 0, 0, 0.0))[:3]
    ]


def grown_logs(old: Progress, new: Progress) -> list[dict[str, Any]]:
    """The logs that have new bytes, with their sizes."""
    return [
        {"attempt": attempt, "path": path, "size_bytes": size_bytes}
        for (attempt, path), size_bytes in new.logs.items()
        if old.logs.get((attempt, path)) != size_bytes
    ]


def _row(job: Job, last_event: int, waiting: str) -> Row:
    columns: ListColumns = {"waiting": waiting}
    summary: JobRow = {**summary_json(job), **columns}
    return Row(job.id, job.workspace, job.name, last_event, None if job.deleted else summary)
