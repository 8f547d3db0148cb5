"""Preempt low-priority jobs; they resume later.

Owns: which attempts are preempted for which jobs, their stop requests, preemption on request.
Leaves: the choice to admission/queue.py, the end of the attempt and its way back into the queue to
attempts/worker_reports.py, SIGTERM and the grace to the worker.
Always: only low-priority attempts are preempted, no more of them than needed, and only when
that frees enough; a retry policy does not count preempted attempts.
"""

from __future__ import annotations

from torchyard.base.errors import Conflict
from torchyard.compute import actions as computes
from torchyard.jobs import actions
from torchyard.jobs.actions import attempt_key, job_key
from torchyard.jobs.admission import queue
from torchyard.jobs.admission.queue_store import Queued
from torchyard.jobs.attempts.root_cause import PREEMPTED
from torchyard.jobs.records import attempt_store, progress, store
from torchyard.jobs.records.types import Attempt, Job, JobError, Status
from torchyard.jobs.scheduling.queue_walk import Walk, running_of
from torchyard.jobs.services import RecordServices

_HINT = "the job resumes in the same run: save checkpoints, and load the last one at the start"


def preempt_for_heads(services: RecordServices, walk: Walk) -> None:
    """Preempt low-priority attempts for the job at the head of each queue."""
    waiting = sorted(
        (head for head in walk.heads.values() if not head.job.low),
        key=lambda head: queue.sort_key(head.job),
    )
    pairs = running_of(walk)
    leaving = {attempt.attempt_id for attempt, running in pairs if running.leaving}
    left = dict(walk.free)
    for _, running in pairs:
        if running.leaving:
            left = queue.more(left, running.holds)
    for head in waiting:
        candidates = [
            (attempt.attempt_id, running, attempt.created_at.timestamp())
            for attempt, running in pairs
            if running.low and attempt.attempt_id not in leaving
        ]
        chosen = queue.victims(head.job.needs, left, candidates)
        if chosen is None:
            continue
        for attempt_id, running, _ in candidates:
            if attempt_id in chosen:
                request_stop(services, attempt_id, _reason(walk.jobs[head.job.id]))
                left = queue.more(left, running.holds)
        leaving |= set(chosen)
        # What was freed is reserved for this job, not for the next one.
        left = queue.less(left, head.job.needs)


def preempt(services: RecordServices, workspace: str, name: str, who: str) -> Job:
    """Preempt a running job, as a dedicated job would preempt a low-priority one.

    Raises:
        NotFound: no such job.
        Conflict: it is not running.
    """
    job = actions.get(services, workspace, name)
    with services.db.read() as connection:
        tries = [
            attempt
            for attempt in attempt_store.attempts_of(connection, job.id)
            if attempt.ended_at is None
        ]
    if not tries or job.status is Status.CANCEL_REQUESTED:
        raise Conflict(
            f"job `{name}` is {job.status.value} and holds no nodes",
            f"see `yard job show -n {name}`; only a running job can be preempted",
            code="job_not_running",
        )
    request_stop(services, tries[-1].id, f"`{who}` requested it")
    return actions.get(services, workspace, name)


def _reason(job: Queued) -> str:
    nodes = "a node" if job.node_count == 1 else f"{job.node_count} nodes"
    return f"job `{job.name}` needs {nodes} of `{job.compute}`"


def request_stop(
    services: RecordServices, attempt_id: str, reason: str, *, takes_nodes: bool = True
) -> None:
    """Stop an attempt, unless something else is stopping it already.

    Args:
        takes_nodes: its nodes go; otherwise they are free for any job at once.
    """
    with services.db.write() as connection:
        attempt = attempt_store.attempt_by_id(connection, attempt_id)
        if attempt is None or attempt.ended_at is not None or attempt.order:
            return
        job = store.job_by_id(connection, attempt.job_id)
        now = services.clock.now()
        error = preemption_error(attempt, reason)
        attempt_store.change_attempt(
            connection, attempt.id, order="stop", order_reason=PREEMPTED, error=vars(error)
        )
        if takes_nodes:
            computes.preempt(connection, attempt.id)
        progress.notice(connection, job, f"{error.message}; it is asked to stop", now)
    services.signals.notify(job_key(job))
    services.signals.notify(attempt_key(attempt_id))


def preemption_error(attempt: Attempt, reason: str) -> JobError:
    """The error of a preempted attempt, whatever its ranks do on SIGTERM."""
    return JobError(PREEMPTED, f"attempt {attempt.number} was preempted: {reason}", _HINT)
