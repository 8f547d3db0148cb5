"""Let elastic jobs give nodes to a job that waits.

Owns: which running attempts give how many nodes, and for whom.
Leaves: stopping them to resizing.py, how many nodes they go on with to claims.py, low-priority
attempts that leave altogether to preemption.py.
Always: no job goes below its `min_nodes`; nodes are given only if the waiting job then starts, and
by attempts that have run for their job's pause, so that sizes change no more often than they grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torchyard.jobs.admission import queue
from torchyard.jobs.admission.queue import Amounts, Head
from torchyard.jobs.admission.queue_store import Queued, RunningAttempt
from torchyard.jobs.records import attempt_store, isolation, round_store, store
from torchyard.jobs.records.types import Attempt, Job
from torchyard.jobs.scheduling import resizing
from torchyard.jobs.scheduling.queue_walk import Walk, running_of
from torchyard.jobs.services import RecordServices, Services
from torchyard.jobs.spec import elastic


@dataclass(frozen=True)
class Giver:
    """An attempt that could go on with up to `most` nodes fewer; `each` is what one of them has."""

    attempt_id: str
    began_s: float
    most: int
    each: Amounts


@dataclass(frozen=True)
class _Elastic:
    job: Job
    attempt: Attempt
    held: RunningAttempt
    is_low: bool


def shrink(services: Services, walk: Walk) -> None:
    """One round, after preempting, for the jobs at the heads of the queue."""
    heads = sorted(walk.heads.values(), key=lambda head: queue.sort_key(head.job))
    if not heads:
        return
    left = dict(walk.free)
    for _, running in running_of(walk):
        if running.leaving:
            left = queue.more(left, running.holds)
    candidates: dict[str, _Elastic] | None = None
    for head in heads:
        if not head.preempts and not queue.fits(left, head.job.needs):
            if candidates is None:
                candidates = _candidates(services, walk)
            for attempt_id, count in _gifts(head, walk, left, candidates).items():
                giver = candidates.pop(attempt_id)
                _give(services, giver, count, walk.jobs[head.job.id])
                left = queue.more(left, _share(walk, giver.held, count))
        # What is free or will be is reserved for this job, not for the next one.
        left = queue.less(left, head.job.needs)


def gifts(needs: Amounts, left: Amounts, givers: Sequence[Giver]) -> dict[str, int]:
    """Who gives how many nodes so that `needs` fit; empty when all of them together have too few.

    Those that can give most come first, and of those the latest started: the fewest are stopped.
    """
    gifts_by_attempt: dict[str, int] = {}
    for giver in sorted(givers, key=lambda each: (-each.most, -each.began_s)):
        for count in range(1, giver.most + 1):
            if queue.fits(queue.more(left, queue.times(giver.each, count)), needs):
                return {**gifts_by_attempt, giver.attempt_id: count}
        gifts_by_attempt[giver.attempt_id] = giver.most
        left = queue.more(left, queue.times(giver.each, giver.most))
    return {}


def _candidates(services: RecordServices, walk: Walk) -> dict[str, _Elastic]:
    """By attempt, the elastic ones that may change their size now."""
    with services.db.read() as connection:
        ids = set(round_store.elastic(connection))
    candidates: dict[str, _Elastic] = {}

    def add(holder: RunningAttempt) -> None:
        with services.db.read() as connection:
            job = store.job_by_id(connection, holder.job_id)
            attempt = attempt_store.attempt_by_id(connection, holder.attempt_id)
        if attempt is not None and resizing.is_due(services.clock, job, attempt):
            low = walk.shares.is_low((holder.workspace, holder.compute), holder.priority_rank)
            candidates[holder.attempt_id] = _Elastic(job, attempt, holder, low)

    isolation.isolate_failures([holder for holder in walk.held if holder.job_id in ids], add)
    return candidates


def _gifts(
    head: Head, walk: Walk, left: Amounts, candidates: Mapping[str, _Elastic]
) -> dict[str, int]:
    waiting = walk.jobs[head.job.id]
    givers = []
    for each in candidates.values():
        sizes = elastic.read(each.job.properties)
        cluster_key = (each.held.workspace, each.held.compute)
        if sizes is None or cluster_key != (waiting.workspace, waiting.compute):
            continue
        # A dedicated job gives nothing to one that may be preempted.
        if head.job.low and not each.is_low:
            continue
        maximum = each.held.node_count - sizes.min_nodes
        began_s = each.held.created_at.timestamp()
        givers.append(Giver(each.held.attempt_id, began_s, maximum, _share(walk, each.held, 1)))
    return gifts(head.job.needs, left, givers)


def _give(services: Services, giver: _Elastic, count: int, waiting: Queued) -> None:
    nodes = "a node" if waiting.node_count == 1 else f"{waiting.node_count} nodes"
    because = f"job `{waiting.name}` needs {nodes} of `{waiting.compute}`"
    resizing.stop(services, giver.attempt, giver.held.node_count - count, because)


def _share(walk: Walk, holder: RunningAttempt, count: int) -> dict[str, int]:
    """What so many of its nodes take."""
    return walk.shares.needs(replace(holder, node_count=count))
