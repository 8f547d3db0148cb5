"""Jobs that leave their nodes to others, and come back.

Owns: who is told to leave for whom, the order to leave, a person's wish to try it.
Leaves: the choice to admission/queue.py, the end of the attempt and its way back into the queue to
attempts/worker_reports.py, SIGTERM and the grace to the worker.
Always: only low-priority attempts leave for others, no more of them than needed, and only when
their leaving is enough; a preempted attempt is none of those that a retry policy counts.
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
from torchyard.jobs.services import Services

_HINT = "it goes on in the same run; let it save checkpoints, and load the last one at its start"


def preempt_for_heads(services: Services, walk: Walk) -> None:
    """Tell low-priority attempts to leave for the first of each queue that waits for them."""
    waiting = sorted(
        (head for head in walk.heads.values() if not head.job.low),
        key=lambda head: queue.sort_key(head.job),
    )
    held = running_of(walk)
    leaving = {one.attempt_id for one, running in held if running.leaving}
    left = dict(walk.free)
    for _, running in held:
        if running.leaving:
            left = queue.more(left, running.holds)
    for head in waiting:
        candidates = [
            (one.attempt_id, running, one.created_at.timestamp())
            for one, running in held
            if running.low and one.attempt_id not in leaving
        ]
        chosen = queue.victims(head.job.needs, left, candidates)
        if chosen is None:
            continue
        for attempt_id, running, _ in candidates:
            if attempt_id in chosen:
                _request_stop(services, attempt_id, _reason(walk.jobs[head.job.id]))
                left = queue.more(left, running.holds)
        leaving |= set(chosen)
        # What was freed is this one's, and not the next one's.
        left = queue.less(left, head.job.needs)


def preempt(services: Services, workspace: str, name: str, who: str) -> Job:
    """Do to a running job what a dedicated one does to a low-priority one.

    Raises:
        NotFound: no such job.
        Conflict: it doesn't run.
    """
    job = actions.get(services, workspace, name)
    with services.db.read() as connection:
        tries = [
            one for one in attempt_store.attempts_of(connection, job.id) if one.ended_at is None
        ]
    if not tries or job.status is Status.CANCEL_REQUESTED:
        raise Conflict(
            f"job `{name}` is {job.status.value} and holds no nodes",
            f"see `yard job show -n {name}`; only a job that runs can be preempted",
            code="job_not_running",
        )
    _request_stop(services, tries[-1].id, f"`{who}` asked for it")
    return actions.get(services, workspace, name)


def _reason(job: Queued) -> str:
    nodes = "a node" if job.node_count == 1 else f"{job.node_count} nodes"
    return f"job `{job.name}` needs {nodes} of `{job.compute}`"


def _request_stop(services: Services, attempt_id: str, reason: str) -> None:
    """Have an attempt stopped; what stops it already goes first."""
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
        computes.preempt(connection, attempt.id)
        progress.notice(connection, job, f"{error.message}; it is told to end", now)
    services.signals.notify(job_key(job))
    services.signals.notify(attempt_key(attempt_id))


def preemption_error(attempt: Attempt, reason: str) -> JobError:
    """How a preempted attempt ends, whatever its ranks make of SIGTERM."""
    return JobError(PREEMPTED, f"attempt {attempt.number} is preempted: {reason}", _HINT)
