"""Let jobs go on from their last checkpoint without a retry policy.

Owns: which failures are followed by another attempt when there is a checkpoint, and when that ends.
Leaves: jobs with a policy to spec/retry.py, elastic jobs that lose nodes to losses.py, loading the
checkpoint to the script.
Always: decided from what is stored of the attempts; an attempt that can't find a checkpoint is not
made, and attempts that bring no newer one end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from torchyard.compute import actions as computes
from torchyard.jobs.attempts import losses, root_cause
from torchyard.jobs.attempts.losses import Try
from torchyard.jobs.files import checkpoints
from torchyard.jobs.files.checkpoints import Checkpoint
from torchyard.jobs.records import attempt_store, progress
from torchyard.jobs.records.types import Attempt, AttemptNode, Job, JobError
from torchyard.jobs.services import FileServices
from torchyard.jobs.spec import elastic, retry

# In the error of an attempt: the checkpoint that the next one finds.
CHECKPOINT = "checkpoint"
# Where the last attempt has brought no newer checkpoint: what ended it may need time to go by.
_PAUSE_S = 10.0


def checkpoint_for(services: FileServices, job: Job, error: JobError) -> Checkpoint | None:
    """The checkpoint that the job goes on from after this failure; None when it has failed.

    Reads files: to be called outside of any transaction.
    """
    if retry.is_given(job.properties) or error.code not in retry.INTERRUPTIONS:
        return None
    if elastic.is_elastic(job.properties) and error.code in losses.CODES:
        return None  # losses.py has decided
    return checkpoints.newest(services, job)


def goes_on(
    connection: Connection,
    ended_at: datetime,
    job: Job,
    attempt: Attempt,
    failed: AttemptNode,
    error: JobError,
    nodes: Sequence[AttemptNode],
    checkpoint: Checkpoint | None,
) -> bool:
    """Queue a job again that was interrupted; False when it has failed.

    Args:
        failed: the node that is the root cause, with this error.
        checkpoint: see `checkpoint_for`.
    """
    if checkpoint is None:
        return False
    details = {**error.details, CHECKPOINT: {"name": checkpoint.name, "order": checkpoint.order}}
    ended = replace(attempt, ended_at=ended_at, error=replace(error, details=details))
    tries = _tries([*attempt_store.attempts_of(connection, job.id)[:-1], ended])
    if losses.is_stuck(tries):
        message = f"{losses.MOST} attempts in a row ended without a newer checkpoint"
        progress.notice(connection, job, message, ended_at)
        return False
    slots = computes.slots_of(connection, attempt.id)
    at_fault = [node.node for node in nodes if root_cause.is_at_fault(node, nodes)]
    avoided = {slots[node] for node in at_fault or [failed.node] if node < len(slots)}
    assert ended.error is not None
    progress.resumed(
        connection,
        job,
        ended_at,
        exit_code=failed.exit_code or 1,
        error=ended.error,
        attempt=attempt,
        checkpoint=checkpoint.name,
        pause_s=0.0 if tries[-1].has_progress else _PAUSE_S,
        avoided_slots=sorted({*(job.avoided_slots or ()), *avoided}),
    )
    return True


def _tries(attempts: Sequence[Attempt]) -> list[Try]:
    """An attempt is progress if it left a newer checkpoint than those before it."""
    tries = []
    newest: list[int] = []
    for attempt in attempts:
        details = attempt.error.details if attempt.error is not None else {}
        order = list((details.get(CHECKPOINT) or {}).get("order") or ())
        is_interrupted = attempt.error is not None and attempt.error.code in retry.INTERRUPTIONS
        tries.append(Try(is_interrupted, has_progress=order > newest))
        newest = max(newest, order)
    return tries
