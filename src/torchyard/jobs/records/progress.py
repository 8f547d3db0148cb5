"""How a job moves: statuses, stages, notices, its end.

Owns: the one way to change a status, the timeline, what the end of an attempt gives back.
Leaves: why it moves to jobs/actions.py, attempts/worker_reports.py, attempts/endings.py and
scheduler.py.
Always: runs inside the caller's write transaction; a move that `MOVES` does not list is our own
mistake and raises; a job that has ended stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from torchyard.base import clock
from torchyard.base.errors import TorchyardError
from torchyard.compute import actions as computes
from torchyard.jobs.records import attempt_store, message_store, store
from torchyard.jobs.records.job_events import (
    Event,
    EventBody,
    Notice,
    StageChanged,
    StatusChanged,
    notices_of,
)
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
    parse_job,
)
from torchyard.jobs.spec import elastic, notification_settings
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.types import TokenKind


def created(connection: Connection, job: Job, notices: Sequence[str]) -> None:
    """Write a new job's first events."""
    now = job.created_at
    store.add_event(connection, job.id, now, StatusChanged(job.status))
    for message in notices:
        notice(connection, job, message, now)


def move(connection: Connection, job: Job, status: Status, now: datetime) -> Job:
    """Change the job's status and write the event; return the job as it is then."""
    if job.status is status:
        return job
    assert status in MOVES[job.status], f"{job.name}: {job.status.value} to {status.value}"
    values: JobColumns = {"status": status.value}
    if status is Status.RUNNING and job.started_at is None:
        values["started_at"] = now
        values["started_steady"] = clock.steady_text(now)
    if status in ENDED:
        values["ended_at"] = now
        if job.started_at is not None:
            values["duration_s"] = _duration_s(connection, job, job.started_at, now)
    store.change_job(connection, job.id, **values)
    store.add_event(connection, job.id, now, StatusChanged(status))
    changed: dict[str, Any] = {**values, "status": status}
    return replace(job, **changed)


def _duration_s(connection: Connection, job: Job, start: datetime, end: datetime) -> float:
    """How long the command ran: as its nodes measured it, or since the start where none did."""
    measured_s = attempt_store.ran_s(connection, job.id)
    if measured_s is not None:
        return measured_s
    return clock.seconds_since(start, job.started_steady, end)


def start_stage(
    connection: Connection, job: Job, stage: Stage, now: datetime, waited_for: str = ""
) -> None:
    """End the stage that is open and begin the next."""
    next_stage(connection, job, open_stage(connection, job.id), stage, now, waited_for)


def next_stage(
    connection: Connection,
    job: Job,
    before: StageSpan | None,
    stage: Stage,
    now: datetime,
    waited_for: str = "",
) -> StageSpan:
    """As `start_stage`, where it is known which stage is open; return the one that begins."""
    steady = clock.steady_text(now)
    start = StageChanged(stage, "start", waited_for, steady=steady)
    store.add_events(connection, job.id, now, [*_end_of(before, now), start])
    return StageSpan(stage, now, None, waited_for, steady)


def start_attempt(connection: Connection, job: Job, attempt: Attempt, now: datetime) -> None:
    """Move a queued job to Starting, with its next attempt.

    One whose nodes an engine still has to find moves to Provisioning; see `first_worker_came`.

    Args:
        job: an elastic one has the nodes of its attempt, and GPUs for so many.
    """
    status = Status.STARTING if attempt.is_local else Status.PROVISIONING
    assert status in MOVES[job.status], f"{job.name}: {job.status.value} to {status.value}"
    bodies: list[EventBody] = [StatusChanged(status)]
    if attempt.is_local:
        stage = StageChanged(Stage.RUNNING, "start", steady=clock.steady_text(now))
        bodies = [*_end_of(open_stage(connection, job.id), now), stage, *bodies]
    values: JobColumns = {"attempt": attempt.number, "status": status.value}
    if elastic.is_elastic(job.properties):
        values |= {"node_count": attempt.node_count, "gpus": job.gpus}
    store.change_job(connection, job.id, **values)
    store.add_events(connection, job.id, now, bodies)


def first_worker_came(
    connection: Connection, job: Job, before: StageSpan | None, now: datetime
) -> tuple[Job, StageSpan]:
    """Move a job from Provisioning to Starting; return it and the stage that begins."""
    stage = next_stage(connection, job, before, Stage.RUNNING, now)
    return move(connection, job, Status.STARTING, now), stage


def start_preparing(
    connection: Connection, job: Job, now: datetime, build_log_offset: int, others: int = 0
) -> None:
    """Begin the first stage of a job that waits for its environment.

    Args:
        build_log_offset: where, in bytes, the build that it waits for begins in the log.
        others: how many environments are built before it, if it waits for them.
    """
    _add_preparing(connection, job, now, build_log_offset, others, None)


def build_began(connection: Connection, job: Job, now: datetime, build_log_offset: int) -> bool:
    """Begin the stage again for a job whose environment waited for other builds; False for others.

    Both parts stay in the job's timeline: how long the wait took, and how long the build.
    """
    before = open_stage(connection, job.id)
    if before is None or not before.builds_ahead:
        return False
    _add_preparing(connection, job, now, build_log_offset, 0, before)
    return True


def _add_preparing(
    connection: Connection,
    job: Job,
    now: datetime,
    build_log_offset: int,
    others: int,
    before: StageSpan | None,
) -> None:
    reason = "the environment is being built"
    if others:
        reason = f"the environment is built after {others} others"
    steady = clock.steady_text(now)
    start = StageChanged(
        Stage.PREPARING, "start", reason, build_log_offset, steady, builds_ahead=others
    )
    store.add_events(connection, job.id, now, [*_end_of(before, now), start])


def open_stage(connection: Connection, job_id: int) -> StageSpan | None:
    """The stage that a job is in; None without any."""
    spans = timeline(store.stages_of(connection, job_id))
    return spans[-1] if spans and spans[-1].end is None else None


def _end_of(stage: StageSpan | None, now: datetime) -> list[StageChanged]:
    if stage is None:
        return []
    took_s = clock.seconds_since(stage.start, stage.steady, now)
    return [StageChanged(stage.name, "end", stage.waited_for, took_s=round(took_s, 6))]


def notice_once(connection: Connection, job: Job, message: str, now: datetime) -> None:
    """A notice, unless the job has it already."""
    if message not in notices_of(store.events_after(connection, job.id, 0)):
        notice(connection, job, message, now)


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
    store.add_events(connection, job.id, now, _end_of(open_stage(connection, job.id), now))
    for run_id in _runs_below(connection, job):
        store.change_job(connection, run_id, status=status.value, ended_at=now)
    error_body = None if error is None else vars(error)
    store.change_job(connection, job.id, exit_code=exit_code, error=error_body)
    move(connection, job, status, now)
    _add_messages(connection, job, status, now)


def _add_messages(connection: Connection, job: Job, status: Status, now: datetime) -> None:
    """What is sent of the end, even if this server is killed at once."""
    if job.is_run:
        return  # it has no job file
    stored = workspaces.notifications_of(connection, job.workspace)
    if stored and _is_part(connection, job):
        stored = {}
    names_recipients = job.has_ranks and (
        notification_settings.KEY in job.document or notification_settings.NOTIFY in job.properties
    )
    if not stored and not names_recipients:
        return
    spec = parse_job(job).spec if names_recipients else None
    recipients = notification_settings.to_send(
        status.value,
        spec.recipients if spec else (),
        spec.environment_variables if spec else {},
        stored,
    )
    message_store.add(connection, job, recipients, now)


def _is_part(connection: Connection, job: Job) -> bool:
    """Whether people are told of the end of the job above it, rather than of this one's."""
    if not job.parent:
        return False
    above = store.job_named(connection, job.workspace, job.parent)
    return above is not None and not above.has_ranks and not above.is_run


def _runs_below(connection: Connection, job: Job) -> list[int]:
    """The runs that the job's scripts left running, however deep."""
    ids: dict[int, None] = {}
    parents = [job.name]
    while parents:
        running = store.running_runs(connection, job.workspace, parents)
        parents = [run.name for run in running if run.id not in ids and run.id != job.id]
        ids |= dict.fromkeys(run.id for run in running if run.id != job.id)
    return list(ids)


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


def resumed(
    connection: Connection,
    job: Job,
    now: datetime,
    *,
    exit_code: int,
    error: JobError,
    attempt: Attempt,
    checkpoint: str,
    pause_s: float,
    avoided_slots: list[int],
) -> None:
    """End an interrupted attempt and queue its job again, which goes on from a checkpoint.

    Args:
        avoided_slots: of the cluster, to be kept off.
    """
    store.change_job(
        connection,
        job.id,
        retry_at=now + timedelta(seconds=pause_s),
        avoided_slots=avoided_slots or None,
    )
    message = (
        f"attempt {attempt.number} ended: {error.message}; the job goes on from checkpoint "
        f"`{checkpoint}`"
    )
    notice(connection, job, f"{message} in {pause_s:g} s" if pause_s else message, now)
    _queue_again(connection, job, now, exit_code, error, attempt, "was interrupted")


def preempted(
    connection: Connection, job: Job, now: datetime, exit_code: int | None, attempt: Attempt
) -> None:
    """End a preempted attempt, whose error says for whom, and queue its job again at its place."""
    assert attempt.error is not None
    message = f"attempt {attempt.number} was preempted; the job is queued again and goes on"
    notice(connection, job, message, now)
    _queue_again(connection, job, now, exit_code, attempt.error, attempt, "was preempted")


def resized(connection: Connection, job: Job, now: datetime, attempt: Attempt, change: str) -> None:
    """End an attempt of an elastic job, which goes on at once with another number of nodes.

    Args:
        attempt: its error says why it ended; `change` happened to it, as its job waits for the
            next.
    """
    assert attempt.error is not None
    _queue_again(connection, job, now, attempt.exit_code, attempt.error, attempt, change)


def put_back(
    connection: Connection,
    job: Job,
    now: datetime,
    attempt: Attempt,
    why: str,
    stage: Stage = Stage.SCALING,
) -> None:
    """Take back an attempt that was not started: its job is queued again, at its place.

    Args:
        stage: Preparing for a job that is prepared once more before that.
    """
    computes.release(connection, attempt.id, now)
    workspaces.drop_tokens(connection, TokenKind.ATTEMPT, attempt.id)
    workspaces.drop_tokens(connection, TokenKind.RUN, run_subject(job))
    attempt_store.drop_attempt(connection, attempt.id)
    store.change_job(connection, job.id, attempt=attempt.number - 1)
    _wait_for_fewest(connection, job)
    if job.status in (Status.STARTING, Status.PROVISIONING):
        start_stage(connection, job, stage, now, why)
        status = Status.PREPARING if stage is Stage.PREPARING else Status.QUEUED
        move(connection, job, status, now)
    elif job.status is Status.CANCEL_REQUESTED:
        end(connection, job, Status.CANCELED, now)


def _queue_again(
    connection: Connection,
    job: Job,
    now: datetime,
    exit_code: int | None,
    error: JobError,
    attempt: Attempt,
    change: str,
) -> None:
    _end_attempt(connection, attempt, now, exit_code, error)
    _wait_for_fewest(connection, job)
    workspaces.drop_tokens(connection, TokenKind.RUN, run_subject(job))
    start_stage(connection, job, Stage.SCALING, now, f"attempt {attempt.number} {change}")
    move(connection, job, Status.QUEUED, now)


def _wait_for_fewest(connection: Connection, job: Job) -> None:
    """In the queue, an elastic job needs no more nodes than it can begin with."""
    sizes = elastic.read(job.properties)
    if sizes is not None:
        store.change_job(connection, job.id, node_count=sizes.min_nodes)


def _end_attempt(
    connection: Connection,
    attempt: Attempt,
    now: datetime,
    exit_code: int | None,
    error: JobError | None,
) -> None:
    computes.release(connection, attempt.id, now)
    _drop_attempt_tokens(connection, attempt)
    _change_ended(connection, attempt, now, exit_code, error)


def _drop_attempt_tokens(connection: Connection, attempt: Attempt) -> None:
    workspaces.drop_tokens(connection, TokenKind.ATTEMPT, attempt.id)


def _change_ended(
    connection: Connection,
    attempt: Attempt,
    now: datetime,
    exit_code: int | None,
    error: JobError | None,
) -> None:
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
            spans.append(
                StageSpan(
                    body.stage,
                    event.at,
                    None,
                    body.waited_for,
                    body.steady,
                    builds_ahead=body.builds_ahead,
                )
            )
        else:
            last = spans[-1]
            waited_for = body.waited_for or last.waited_for
            spans[-1] = StageSpan(
                last.name, last.start, event.at, waited_for, last.steady, body.took_s
            )
    return spans
