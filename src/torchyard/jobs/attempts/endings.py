"""End attempts, and decide what becomes of their jobs.

Owns: when an attempt has ended, the job's status and error by it, whether the job is tried again.
Leaves: nodes' reports to worker_reports.py, which failure counts to root_cause.py, the policy
to spec/retry.py.
Always: an attempt ends once, however often this is called; the earliest failure is the job's error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from torchyard.base import clock
from torchyard.base.db import Database
from torchyard.compute import actions as computes
from torchyard.jobs.actions import attempt_key, job_key
from torchyard.jobs.attempts import failure_marks, left_out_code, losses, resumption, root_cause
from torchyard.jobs.files import output_assets
from torchyard.jobs.files.checkpoints import Checkpoint
from torchyard.jobs.history import rewinds
from torchyard.jobs.records import attempt_store, progress, store
from torchyard.jobs.records.logs import Logs
from torchyard.jobs.records.types import (
    Attempt,
    AttemptNode,
    Job,
    JobError,
    NodeState,
    Status,
    parse_job,
)
from torchyard.jobs.services import FileServices, Services
from torchyard.jobs.spec import log_patterns, retry

# Of each rank's log, where a retry policy looks for its patterns.
_LAST_BYTES = 1 << 16


def finish(
    services: Services, attempt_id: str, *, registers: bool = False, cause_known: bool = False
) -> None:
    """End an attempt once all its nodes have. Safe to call at any time, and again.

    Args:
        registers: register named outputs first, so that the assets exist once the job is
            Completed. That may copy a large model: without this, such an attempt is left to
            the scheduler (output_registration.py), and no request waits for it.
        cause_known: its engine has said why it ended the nodes, if it did; without this, a failed
            one of another engine is left to the scheduler (engine_nodes.py).
    """
    with services.db.read() as connection:
        attempt = attempt_store.attempt_by_id(connection, attempt_id)
        if attempt is None:
            return  # its job was deleted
        nodes = attempt_store.nodes_of(connection, attempt_id)
        job = store.job_by_id(connection, attempt.job_id)
    if attempt.ended_at is not None or not all(node.state is NodeState.EXITED for node in nodes):
        return
    went_well = (
        root_cause.failed_node(nodes) is None
        and attempt.order_reason != "cancel"
        and failure_marks.reported(attempt) is None
    )
    is_meant = attempt.order_reason not in root_cause.OF_ITSELF
    is_told = cause_known or registers or attempt.is_local or is_meant
    if not is_told and root_cause.failed_node(nodes) is not None:
        services.wakeup.set()
        return
    # Most have none: their document need not be parsed again.
    if went_well and job.document.get("outputs") and (parsed := parse_job(job)).spec.outputs:
        if not registers and output_assets.are_named(parsed):
            services.wakeup.set()
            return
        output_assets.settle(services, parsed)
    left = _left(services, job, attempt, nodes)
    with services.db.write() as connection:
        ended = _end(connection, services.clock.now(), attempt, left)
    if ended:
        services.signals.notify(job_key(job))
        services.signals.notify(attempt_key(attempt_id))
        services.wakeup.set()


@dataclass(frozen=True)
class _Left:
    """What a failed attempt left in files: patterns that its ranks printed, a checkpoint."""

    printed: frozenset[str] = frozenset()
    checkpoint: Checkpoint | None = None


def _ended_at(nodes: Sequence[AttemptNode], now: datetime) -> datetime:
    """When its last node exited: what the server has done since then is not the job's time."""
    exited_at = max(node.seen_at for node in nodes)
    return clock.earlier(now, max(0.0, (now - exited_at).total_seconds()))


def is_long(db: Database, attempt: Attempt) -> bool:
    """Whether something may have to be registered before the attempt can end."""
    with db.read() as connection:
        return output_assets.are_named(store.command_job_by_id(connection, attempt.job_id))


def fail(services: Services, attempt: Attempt, error: JobError) -> None:
    """End an attempt whose workers never started."""
    with services.db.read() as connection:
        job = store.job_by_id(connection, attempt.job_id)
    printed = _printed(services.logs, job, attempt)
    with services.db.write() as connection:
        current = attempt_store.attempt_by_id(connection, attempt.id)
        if current is None or current.ended_at is not None:
            return
        job = store.job_by_id(connection, attempt.job_id)
        now = services.clock.now()
        if current.order_reason == "cancel":
            # It was canceled meanwhile: that it could not start does not matter.
            progress.end(
                connection, job, Status.CANCELED, now, error=current.error, attempt=current
            )
        else:
            nodes = attempt_store.nodes_of(connection, attempt.id)
            if not _try_again(connection, now, job, attempt, error, 1, nodes, printed):
                progress.end(connection, job, Status.FAILED, now, error=error, attempt=attempt)
    services.signals.notify(job_key(job))
    services.wakeup.set()


def _end(connection: Connection, now: datetime, attempt: Attempt, left: _Left) -> bool:
    """Whether this call ended it, or queued its job again."""
    current = attempt_store.attempt_by_id(connection, attempt.id)
    if current is None or current.ended_at is not None:
        return False
    nodes = attempt_store.nodes_of(connection, attempt.id)
    if not all(node.state is NodeState.EXITED for node in nodes):
        return False
    job = store.job_by_id(connection, attempt.job_id)
    if job.status.ended:
        return False
    ended_at = _ended_at(nodes, now)
    failed = root_cause.failed_node(nodes)
    reported = failure_marks.reported(current)
    if current.order_reason == "cancel":
        code = failed.exit_code if failed else None
        status, error = Status.CANCELED, current.error
    elif current.order_reason == failure_marks.MARKED_FAILED:
        code = failed.exit_code if failed else None
        status, error = Status.FAILED, current.error
    elif failed is None and reported is not None:
        code, status, error = 0, Status.FAILED, reported
    elif failed is None:
        code, status, error = 0, Status.COMPLETED, None
    elif current.order_reason == root_cause.PREEMPTED:
        progress.preempted(connection, job, ended_at, failed.exit_code, current)
        return True
    elif current.order_reason == root_cause.RESIZED and not losses.is_loss(failed):
        ended = replace(current, exit_code=failed.exit_code)
        progress.resized(
            connection, job, ended_at, ended, "was stopped to go on with another number of nodes"
        )
        return True
    else:
        code, status = failed.exit_code, Status.FAILED
        error = failed.error or JobError("failed", f"node {failed.node} failed")
        if losses.goes_on(connection, ended_at, job, current, failed, error, nodes):
            return True
        if resumption.goes_on(
            connection, ended_at, job, current, failed, error, nodes, left.checkpoint
        ):
            return True
        error = left_out_code.explained(failure_marks.explained(error, reported), job.properties)
        if _try_again(connection, ended_at, job, current, error, code or 1, nodes, left.printed):
            return True
    if attempt.number > 1:
        rewinds.settle(connection, job.id)
    progress.end(connection, job, status, ended_at, exit_code=code, error=error, attempt=attempt)
    return True


def _try_again(
    connection: Connection,
    ended_at: datetime,
    job: Job,
    attempt: Attempt,
    error: JobError,
    exit_code: int,
    nodes: Sequence[AttemptNode],
    printed: frozenset[str],
) -> bool:
    """Queue the job again if its policy says so; False when this failure is its end."""
    policy = retry.read(job.properties)
    uncounted = _uncounted(connection, job)
    number = attempt.number - uncounted
    if policy.max_attempts <= number:
        return False
    decision = retry.decide(policy, number, retry.Failure(error.code, exit_code, printed))
    if decision is None:
        return False
    avoided: list[int] = []
    if decision.elsewhere:
        slots = computes.slots_of(connection, attempt.id)
        failed = [node.node for node in nodes if root_cause.is_at_fault(node, nodes)]
        avoided = sorted({*(job.avoided_slots or ()), *(slots[node] for node in failed)})
    progress.try_again(
        connection,
        job,
        ended_at,
        exit_code=exit_code,
        error=error,
        attempt=attempt,
        of=policy.max_attempts + uncounted,
        pause_s=decision.pause_s,
        avoided_slots=avoided,
    )
    return True


def _uncounted(connection: Connection, job: Job) -> int:
    """How many attempts were preempted or resized, which no retry policy counts."""
    tries = attempt_store.attempts_of(connection, job.id)
    return sum(each.ended_at is not None and losses.is_uncounted(each, job) for each in tries)


def _left(
    services: FileServices, job: Job, attempt: Attempt, nodes: Sequence[AttemptNode]
) -> _Left:
    """What the decision over its failure reads; searched outside any transaction."""
    failed = root_cause.failed_node(nodes)
    if failed is None:
        return _Left()
    error = failed.error
    checkpoint = None if error is None else resumption.checkpoint_for(services, job, error)
    return _Left(_printed(services.logs, job, attempt), checkpoint)


def _printed(logs: Logs, job: Job, attempt: Attempt) -> frozenset[str]:
    """The patterns of its policy that its ranks printed."""
    patterns = retry.read(job.properties).patterns
    return log_patterns.found(patterns, _log_ends(logs, attempt)) if patterns else frozenset()


def _log_ends(logs: Logs, attempt: Attempt) -> str:
    """The end of each rank's standard output and error."""
    ends = []
    for log in logs.list(attempt.workspace, attempt.job_name):
        if log.attempt == attempt.number and log.path.startswith("user_logs/"):
            file = logs.file(attempt.workspace, attempt.job_name, log.attempt, log.path)
            with open(file, "rb") as opened:
                opened.seek(max(0, log.size_bytes - _LAST_BYTES))
                ends.append(opened.read(_LAST_BYTES).decode("utf-8", "replace"))
    return "\n".join(ends)
