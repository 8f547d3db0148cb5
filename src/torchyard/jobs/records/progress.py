"""How a job moves: statuses, stages, notices, its end.

Owns: the one way to change a status, the timeline, what the end of an attempt gives back.
Leaves: why it moves to jobs/actions.py, attempts/worker_reports.py, attempts/endings.py and
http/scheduler.py.
Always: runs inside the caller's write transaction; a move that `MOVES` does not list is our own
mistake and raises; a job that has ended stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from torchyard.base import clock
from torchyard.base.errors import TorchyardError
from torchyard.compute import actions as computes
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.job_events import Event, EventBody, Notice, StageChanged, StatusChanged
from torchyard.jobs.records.row_changes import JobColumns
from torchyard.jobs.records.types import (
    ENDED,
    MOVES,
    Attempt,
    Job,
    JobError,
    Stage,
    StageSpan,
    Status,
)
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.types import TokenKind


def created(connection: Connection, job: Job, notices: Sequence[str]) -> None:
    """Write a new job's first events."""
    now = job.created_at
    store.add_event(connection, job.id, now, StatusChanged(job.status))
    for message in notices:
        notice(connection, job, message, now)


def move(connection: Connection, job: Job, status: Status, now: datetime) -> None:
    """Change the job's status and write the event."""
    if job.status is status:
        return
    assert status in MOVES[job.status], f"{job.name}: {job.status.value} to {status.value}"
    values: JobColumns = {"status": status.value}
    if status is Status.RUNNING and job.started_at is None:
        values["started_at"] = now
        values["started_steady"] = clock.steady_text(now)
    if status in ENDED:
        values["ended_at"] = now
        if job.started_at is not None:
            values["duration_s"] = clock.seconds_since(job.started_at, job.started_steady, now)
    store.change_job(connection, job.id, **values)
    store.add_event(connection, job.id, now, StatusChanged(status))


def start_stage(
    connection: Connection, job: Job, stage: Stage, now: datetime, waited_for: str = ""
) -> None:
    """End the stage that is open and begin the next."""
    bodies = [
        *_end_of_stage(connection, job, now),
        StageChanged(stage, "start", waited_for, steady=clock.steady_text(now)),
    ]
    store.add_events(connection, job.id, now, bodies)


def start_attempt(connection: Connection, job: Job, number: int, now: datetime) -> None:
    """Move a queued job to Starting, with its next attempt."""
    assert Status.STARTING in MOVES[job.status], f"{job.name}: {job.status.value} to Starting"
    bodies: list[EventBody] = [
        *_end_of_stage(connection, job, now),
        StageChanged(Stage.RUNNING, "start", steady=clock.steady_text(now)),
        StatusChanged(Status.STARTING),
    ]
    store.change_job(connection, job.id, attempt=number, status=Status.STARTING.value)
    store.add_events(connection, job.id, now, bodies)


def start_preparing(connection: Connection, job: Job, now: datetime, build_log_offset: int) -> None:
    """Begin the first stage of a job that waits for its environment.

    Args:
        build_log_offset: where, in bytes, the build that it waits for begins in the log.
    """
    body = StageChanged(
        Stage.PREPARING,
        "start",
        "the environment is built",
        build_log_offset,
        clock.steady_text(now),
    )
    store.add_event(connection, job.id, now, body)


def end_stage(connection: Connection, job: Job, now: datetime) -> None:
    """End the stage that is open, if one is."""
    store.add_events(connection, job.id, now, _end_of_stage(connection, job, now))


def _end_of_stage(connection: Connection, job: Job, now: datetime) -> list[StageChanged]:
    spans = timeline(store.events_after(connection, job.id, 0))
    if not spans or spans[-1].end is not None:
        return []
    last = spans[-1]
    took_s = clock.seconds_since(last.start, last.steady, now)
    return [StageChanged(last.name, "end", last.waited_for, took_s=round(took_s, 6))]


def notice(connection: Connection, job: Job, message: str, now: datetime) -> None:
    """Tell the user something about how the job is run."""
    store.add_event(connection, job.id, now, Notice(message))


def end(
    connection: Connection,
    job: Job,
    status: Status,
    now: datetime,
    *,
    exit_code: int | None = None,
    error: JobError | TorchyardError | None = None,
    attempt: Attempt | None = None,
) -> None:
    """Bring the job to its end and give back what it held.

    Runs below it that its scripts have left running end as it does: nobody else will end them.
    """
    if isinstance(error, TorchyardError):
        error = JobError(error.code, error.message, error.hint)
    if attempt is not None:
        _end_attempt(connection, attempt, now, exit_code, error)
    workspaces.drop_tokens(connection, TokenKind.RUN, run_subject(job))
    end_stage(connection, job, now)
    store.change_job(
        connection, job.id, exit_code=exit_code, error=None if error is None else vars(error)
    )
    _end_runs_below(connection, job, status, now)
    move(connection, job, status, now)


def _end_runs_below(connection: Connection, job: Job, status: Status, now: datetime) -> None:
    left = store.running_runs(connection, job.workspace, [job.name])
    while left:
        for run in left:
            store.change_job(connection, run.id, status=status.value, ended_at=now)
        left = store.running_runs(connection, job.workspace, [run.name for run in left])


def try_again(
    connection: Connection,
    job: Job,
    now: datetime,
    *,
    exit_code: int | None,
    error: JobError,
    attempt: Attempt,
    of: int,
    pause_s: float,
    avoided_slots: list[int],
) -> None:
    """End an attempt and put its job back into the queue, under its name and run id.

    Args:
        of: how many attempts there may be in all.
        avoided_slots: of the cluster, to be kept off.
    """
    store.change_job(
        connection,
        job.id,
        retry_at=now + timedelta(seconds=pause_s),
        avoided_slots=avoided_slots or None,
    )
    message = f"attempt {attempt.number} of {of} failed: {error.message}; tried again"
    notice(connection, job, f"{message} in {pause_s:g} s" if pause_s else message, now)
    _queue_again(connection, job, now, exit_code, error, attempt, "failed")


def preempted(
    connection: Connection, job: Job, now: datetime, exit_code: int | None, attempt: Attempt
) -> None:
    """End a preempted attempt, whose error says for whom, and queue its job again at its place."""
    assert attempt.error is not None
    message = f"attempt {attempt.number} was preempted; the job is queued again and goes on"
    notice(connection, job, message, now)
    _queue_again(connection, job, now, exit_code, attempt.error, attempt, "was preempted")


def put_back(connection: Connection, job: Job, now: datetime, attempt: Attempt, why: str) -> None:
    """Take back an attempt that was not started: its job is queued again, at its place."""
    computes.release(connection, attempt.id, now)
    workspaces.drop_tokens(connection, TokenKind.ATTEMPT, attempt.id)
    workspaces.drop_tokens(connection, TokenKind.RUN, run_subject(job))
    attempt_store.drop_attempt(connection, attempt.id)
    store.change_job(connection, job.id, attempt=attempt.number - 1)
    if job.status is Status.STARTING:
        start_stage(connection, job, Stage.SCALING, now, why)
        move(connection, job, Status.QUEUED, now)
    elif job.status is Status.CANCEL_REQUESTED:
        end(connection, job, Status.CANCELED, now)


def _queue_again(
    connection: Connection,
    job: Job,
    now: datetime,
    exit_code: int | None,
    error: JobError,
    attempt: Attempt,
    what: str,
) -> None:
    _end_attempt(connection, attempt, now, exit_code, error)
    workspaces.drop_tokens(connection, TokenKind.RUN, run_subject(job))
    start_stage(connection, job, Stage.SCALING, now, f"attempt {attempt.number} {what}")
    move(connection, job, Status.QUEUED, now)


def _end_attempt(
    connection: Connection,
    attempt: Attempt,
    now: datetime,
    exit_code: int | None,
    error: JobError | None,
) -> None:
    computes.release(connection, attempt.id, now)
    workspaces.drop_tokens(connection, TokenKind.ATTEMPT, attempt.id)
    error_body = None if error is None else vars(error)
    attempt_store.change_attempt(
        connection, attempt.id, ended_at=now, exit_code=exit_code, error=error_body
    )


def run_subject(job: Job) -> str:
    """What a run token is bound to."""
    return f"{job.workspace}/{job.name}"


def timeline(events: list[Event]) -> list[StageSpan]:
    """The stages a job went through, from its events."""
    spans: list[StageSpan] = []
    for event in events:
        body = event.body
        if not isinstance(body, StageChanged):
            continue
        if body.state == "start":
            spans.append(StageSpan(body.stage, event.at, None, body.waited_for, body.steady))
        else:
            last = spans[-1]
            waited_for = body.waited_for or last.waited_for
            spans[-1] = StageSpan(
                last.name, last.start, event.at, waited_for, last.steady, body.took_s
            )
    return spans
