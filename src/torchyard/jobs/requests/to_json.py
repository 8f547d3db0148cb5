"""Convert a job to JSON for the native API and the SDK."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from torchyard.base.clock import to_text
from torchyard.base.documents import secret_variables
from torchyard.jobs import actions
from torchyard.jobs.admission import queue, waiting_reasons
from torchyard.jobs.history import history_store, metric_rows
from torchyard.jobs.records import attempt_store, job_masking, progress, store
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Attempt, Job, JobError
from torchyard.jobs.requests import answer_types
from torchyard.jobs.requests.answer_types import (
    ComparedJob,
    JobAttempt,
    JobDetails,
    JobFailure,
    JobSummary,
)
from torchyard.jobs.services import Services
from torchyard.jobs.spec import rehearsal
from torchyard.models import actions as models
from torchyard.shared.record_rules import number_json

_MOST_NEWEST = 20


def job_json(services: Services, job: Job) -> answer_types.Job:
    """The whole job: timeline, notices, last metrics, models."""
    events = actions.events(services.db, job)
    with services.db.read() as connection:
        environment_hash = store.environment_hash_of(connection, job.id)
        attempts = attempt_store.attempts_of(connection, job.id)
        tables = metric_rows.counts(connection, job.id)
    logged = services.history.data_of([job.id])[job.id]
    points = logged.metrics
    newest = sorted(points, key=lambda point: (-point.timestamp, point.key))
    details: JobDetails = {
        "environment_hash": environment_hash,
        "waiting": waiting_reasons.describe(services, job),
        "stages": [
            {
                "name": span.name.value,
                "start": to_text(span.start),
                "end": _text(span.end),
                "waited_for": span.waited_for,
                "duration_s": _duration_s(span.start, span.end, span.took_s),
            }
            for span in progress.timeline(events)
        ],
        "attempts": [_attempt_json(attempt) for attempt in attempts],
        "notices": notices_of(events),
        "metrics": {point.key: number_json(point.value) for point in points},
        "tables": tables,
        "newest_metrics": [point.key for point in newest[:_MOST_NEWEST]],
        "params": logged.params,
        "models": [
            {"name": model.name, "version": model.version}
            for model in models.of_job(services.db, job.workspace, job.name)
        ],
    }
    return {
        **summary_json(job, with_details=True),
        "spec": secret_variables.masked_document(job.document),
        **job_masking.masked(job, details),
    }


def comparison_json(services: Services, jobs: Sequence[Job]) -> answer_types.Comparison:
    """Each job without its timeline; none that has been deleted since `jobs` were read."""
    ids = [job.id for job in jobs]
    with services.db.read() as connection:
        hashes = store.environment_hashes_of(connection, ids)
        params = history_store.params_of(connection, ids)
        values = history_store.values_of(connection, ids)
    params_by_job: dict[int, dict[str, str]] = {job_id: {} for job_id in ids}
    for job_id, key, value in params:
        params_by_job[job_id][key] = value
    return {
        "value": [
            _compared_json(job, hashes[job.id], params_by_job[job.id], values[job.id])
            for job in jobs
            if job.id in hashes
        ]
    }


def _compared_json(
    job: Job, environment_hash: str, params: dict[str, str], values: dict[str, float]
) -> ComparedJob:
    numbers = {key: number_json(value) for key, value in values.items()}
    return {
        **summary_json(job, with_details=True),
        "environment_hash": environment_hash,
        "params": job_masking.masked(job, params),
        "values": job_masking.masked(job, numbers),
        "spec": secret_variables.masked_document(job.document),
    }


def _attempt_json(attempt: Attempt) -> JobAttempt:
    return {
        "number": attempt.number,
        "node_count": attempt.node_count,
        "created_at": to_text(attempt.created_at),
        "ended_at": _text(attempt.ended_at),
        "exit_code": attempt.exit_code,
        "error": None if attempt.error is None else _failure_json(attempt.error),
    }


def _failure_json(error: JobError, with_details: bool = False) -> JobFailure:
    failure: JobFailure = {"code": error.code, "message": error.message, "hint": error.hint}
    if with_details and error.details:
        failure["details"] = error.details
    return failure


def summary_json(job: Job, with_details: bool = False) -> JobSummary:
    """A job's entry in a list, without another database query.

    Args:
        with_details: of its error.
    """
    summary: JobSummary = {
        "name": job.name,
        "display_name": job.display_name,
        "experiment_name": job.experiment_name,
        "type": job.type,
        "status": job.status,
        "description": job.description,
        "archived": job.archived,
        "tags": job.tags,
        "properties": job.properties,
        "parent": job.parent,
        "compute": job.compute,
        "node_count": job.node_count,
        "processes_per_node": job.processes_per_node,
        "priority": queue.priority_of(job.priority_rank),
        "job_tier": "spot" if job.priority_rank >= queue.SPOT_RANK else "standard",
        "created_at": to_text(job.created_at),
        "started_at": _text(job.started_at),
        "ended_at": _text(job.ended_at),
        "duration_s": _duration_s(job.started_at, job.ended_at, job.duration_s),
        "owner": job.owner,
        "attempt": job.attempt,
        "rehearsal": rehearsal.mode(job.properties),
        "exit_code": job.exit_code,
        "error": None if job.error is None else _failure_json(job.error, with_details),
    }
    return {**job_masking.masked(job, summary), "name": job.name}


def _duration_s(
    start: datetime | None, end: datetime | None, measured_s: float | None
) -> float | None:
    """As measured, or by the times between which it was, where it was not."""
    if measured_s is not None or start is None or end is None:
        return measured_s
    return (end - start).total_seconds()


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)
