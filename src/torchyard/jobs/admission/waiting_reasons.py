"""Explain why a queued job has no nodes yet, or why a running one stands, in a sentence or two.

Owns: the wording.
Leaves: the rules to queue.py, quotas to quota_checks.py, ranks that stand to records/stalls.py.
Always: gives the scheduler's own reasons, from the same tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchyard.base.clock import to_text
from torchyard.base.db import Database
from torchyard.jobs.admission import gpus, machine, queue, queue_store, quota_checks, shares
from torchyard.jobs.admission.queue import Amounts, Running
from torchyard.jobs.admission.queue_store import RunningAttempt
from torchyard.jobs.admission.shares import Shares
from torchyard.jobs.records import attempt_store, stalls
from torchyard.jobs.records.types import PAUSED_UNTIL, Job, Status
from torchyard.jobs.services import Services
from torchyard.shared.plurals import plural

_MOST_HOLDERS = 3
_MACHINE = {
    "nodes": "nodes of this machine",
    "gpus": "GPUs",
    "cores": "cores",
    "memory_mb": "MiB of memory",
}


def describe(services: Services, job: Job) -> str:
    """Empty when it is not waiting, or when the next round starts it.

    Of a running job that is what its ranks wait for, where none of them makes progress.
    """
    if job.status is Status.RUNNING:
        return _of_ranks(services.db, job)
    if job.status is Status.PROVISIONING:
        return _of_engine(services.db, job)
    if job.status is not Status.QUEUED:
        return ""
    now = services.clock.now()
    if job.retry_at == PAUSED_UNTIL:
        return f"is paused, until sweep `{job.parent}` lets it go on"
    if job.retry_at is not None and job.retry_at > now:
        if not job.attempt:
            return f"waits for its code from the client, until {to_text(job.retry_at)}"
        return f"waits before attempt {job.attempt + 1}, until {to_text(job.retry_at)}"
    with services.db.read() as connection:
        quota = quota_checks.waiting_reason(connection, job)
        if quota:
            return quota
        taken = gpus.waiting_reason(services.devices, connection, job)
        queued = queue_store.queued_by_id(connection, job.id)
        in_front, before = queue_store.in_front(connection, queued, now)
        every = shares.read(connection, machine.bounds(services))
        active = queue_store.list_running(connection)
    running = [every.running(attempt, now.timestamp()) for attempt in active]
    free = dict(every.capacity)
    for attempt in running:
        free = queue.less(free, attempt.holds)
    needs = every.needs(job)
    fits = queue.fits(free, needs)
    if fits and not in_front:
        return taken
    short = {name for name, amount in needs.items() if free.get(name, 0) < amount}
    holding = [
        attempt
        for attempt, amounts in zip(active, running, strict=True)
        if not amounts.leaving and short.intersection(amounts.holds)
    ]
    parts = [_describe_shortage(job, every, free, needs) + _holders(job, holding)]
    if in_front:
        parts.append(f"it is {_ordinal(in_front + 1)} in the queue, behind job `{before}`")
        if fits:
            parts[-1] += f", for which {'it is' if job.node_count == 1 else 'they are'} reserved"
    leaving = _who_leaves(active, running, needs)
    if leaving and not in_front:
        parts.append(f"{leaving} for it")
    return "; ".join(parts)


def _of_engine(db: Database, job: Job) -> str:
    with db.read() as connection:
        tries = attempt_store.attempts_of(connection, job.id)
    return tries[-1].waiting_for if tries else ""


def _of_ranks(db: Database, job: Job) -> str:
    with db.read() as connection:
        tries = attempt_store.attempts_of(connection, job.id)
        if not tries or not stalls.may_stand(attempt_store.node_of(connection, tries[-1].id, 0)):
            return ""
        nodes = attempt_store.nodes_of(connection, tries[-1].id)
    return stalls.message_of(nodes)


def _describe_shortage(job: Job, every: Shares, free: Amounts, needs: Amounts) -> str:
    """What it needs and what is free: of its cluster, and of the machine where that is short."""
    nodes_name = shares.nodes_of(job.workspace, job.compute)
    nodes = f"{job.node_count} {plural('node', job.node_count)}"
    total = every.capacity.get(nodes_name, 0)
    there = max(0, free.get(nodes_name, 0))
    are = "is" if there == 1 else "are"
    sentence = f"needs {nodes}; {there} of {total} nodes of `{job.compute}` {are} free"
    for name, words in _MACHINE.items():
        if name in needs and free[name] < needs[name]:
            sentence += (
                f", and {max(0, free[name])} of the {needs[name]} {words} that they take together"
            )
    return sentence


def _holders(job: Job, holding: Sequence[RunningAttempt]) -> str:
    """Who has what it is short of, the largest first; of other workspaces only how many."""
    own = [attempt for attempt in holding if attempt.workspace == job.workspace]
    own.sort(key=lambda attempt: (-attempt.node_count, attempt.created_at, attempt.job_name))
    texts = [
        f"`{attempt.job_name}` of `{attempt.owner}` ({attempt.node_count} "
        f"{plural('node', attempt.node_count)}, {_until(attempt)})"
        for attempt in own[:_MOST_HOLDERS]
    ]
    if len(own) > _MOST_HOLDERS:
        texts.append(f"{len(own) - _MOST_HOLDERS} more")
    elsewhere = len(holding) - len(own)
    if elsewhere:
        texts.append(f"{elsewhere} {plural('job', elsewhere)} of other workspaces")
    return f"; in use by {_listed(texts)}" if texts else ""


def _until(attempt: RunningAttempt) -> str:
    ends_by = attempt.ends_by
    return "no time limit" if ends_by is None else f"until {ends_by:%Y-%m-%d %H:%M} UTC at most"


def _listed(texts: Sequence[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if texts[1:] else texts)


def _who_leaves(
    active: Sequence[RunningAttempt], running: Sequence[Running], needs: Amounts
) -> str:
    names = [
        f"`{attempt.job_name}`"
        for attempt, amounts in zip(active, running, strict=True)
        if amounts.leaving and any(name in needs for name in amounts.holds)
    ]
    if not names:
        return ""
    return f"{plural('job', len(names))} {', '.join(names)} {'make' if names[1:] else 'makes'} room"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{ending or 'th'}"
