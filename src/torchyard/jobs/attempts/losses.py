"""What follows when an elastic job loses nodes.

Owns: which failures are lost nodes, how its job goes on, and when that ends.
Leaves: every other failure to endings.py and spec/retry.py, how many nodes the next attempt gets to
scheduling/claims.py.
Always: decided from what is stored of the attempts; a loss takes no try of a retry policy, and
losses without any progress end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from torchyard.compute import actions as computes
from torchyard.jobs.attempts import root_cause
from torchyard.jobs.history import rewinds
from torchyard.jobs.records import attempt_store, progress, store
from torchyard.jobs.records.types import Attempt, AttemptNode, Job, JobError
from torchyard.jobs.spec import elastic

# The worker or the machine of a node is gone, whatever its ranks did.
CODES = ("worker_lost", "node_lost", "node_unusable", "not_responding")
# In the error of an attempt: why the next one has another number of nodes.
BECAUSE = "goes_on_because"
# Which nodes it lost, and how many nodes the next one may have.
LOST, NEXT_NODES = "lost_nodes", "next_node_count"
# So many in a row without progress end the job.
MOST = 3
# An attempt that ran so long has got somewhere, even if it saved nothing that the server knows of.
_LONG = timedelta(minutes=10)


@dataclass(frozen=True)
class Try:
    """An attempt of a job, as the limit of losses sees it."""

    is_loss: bool
    has_progress: bool


def goes_on(
    connection: Connection,
    ended_at: datetime,
    job: Job,
    attempt: Attempt,
    failed: AttemptNode,
    error: JobError,
    nodes: Sequence[AttemptNode],
) -> bool:
    """Queue an elastic job again that has lost nodes; False when that is not what happened, or
    happens without end.

    Args:
        failed: the node that is the root cause, with this error.
    """
    if not elastic.is_elastic(job.properties) or error.code not in CODES:
        return False
    loaded_at_ms = rewinds.loaded_at_ms(connection, job.id)
    before = attempt_store.attempts_of(connection, job.id)[:-1]
    ended = replace(attempt, ended_at=ended_at, error=error)
    if is_stuck([_try(each, loaded_at_ms) for each in (*before, ended)]):
        message = (
            f"{MOST} attempts in a row lost nodes without a new checkpoint or "
            f"{_LONG.total_seconds() / 60:g} minutes of training"
        )
        progress.notice(connection, job, message, ended_at)
        return False
    lost = [
        node.node
        for node in nodes
        if node.error is not None
        and node.error.code in CODES
        and root_cause.is_at_fault(node, nodes)
    ] or [failed.node]
    because = f"{_nodes(lost)} lost"
    slots = computes.slots_of(connection, attempt.id)
    avoided = sorted(slots[node] for node in lost if node < len(slots))
    store.change_job(connection, job.id, avoided_slots=avoided or None)
    progress.notice(connection, job, f"attempt {attempt.number} ended: {error.message}", ended_at)
    details = {**error.details, BECAUSE: because, LOST: lost}
    exit_code = failed.exit_code or 1
    ended = replace(attempt, exit_code=exit_code, error=replace(error, details=details))
    progress.resized(connection, job, ended_at, ended, f"lost {_nodes(lost, verb=False)}")
    return True


def is_stuck(tries: Sequence[Try]) -> bool:
    """Whether the last attempts were all lost without any progress."""
    last = tries[-MOST:]
    return len(last) == MOST and all(each.is_loss and not each.has_progress for each in last)


def is_loss(failed: AttemptNode) -> bool:
    return failed.error is not None and failed.error.code in CODES


def is_uncounted(attempt: Attempt, job: Job) -> bool:
    """Whether no retry policy counts this attempt, which has ended."""
    code = attempt.error.code if attempt.error is not None else ""
    if code in (root_cause.PREEMPTED, root_cause.RESIZED):
        return True
    return elastic.is_elastic(job.properties) and code in CODES


def _try(attempt: Attempt, loaded_at_ms: int | None) -> Try:
    """An attempt that has ended.

    Args:
        loaded_at_ms: when the checkpoint was saved that was loaded last, None without.
    """
    code = attempt.error.code if attempt.error is not None else ""
    return Try(code in CODES, has_trained(attempt.created_at, attempt.ended_at, loaded_at_ms))


def has_trained(began_at: datetime, ended_at: datetime | None, loaded_at_ms: int | None) -> bool:
    """Whether an attempt ran for long, or a later one went on from what it had saved."""
    if ended_at is not None and ended_at - began_at >= _LONG:
        return True
    return loaded_at_ms is not None and loaded_at_ms >= began_at.timestamp() * 1000


def _nodes(lost: Sequence[int], verb: bool = True) -> str:
    """`node 1 was`, or `nodes 1, 2 were`; without the verb, only which."""
    names = ", ".join(map(str, lost))
    if len(lost) == 1:
        return f"node {names}" + " was" * verb
    return f"nodes {names}" + " were" * verb
