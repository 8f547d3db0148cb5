"""Stop elastic jobs that could go on with more nodes.

Owns: which running attempts are asked to stop for nodes that are free, and when.
Leaves: stopping them to resizing.py, how many nodes the next attempt gets to claims.py, jobs that
give nodes away to shrinking.py.
Always: only for nodes that nobody else waits for; an attempt has run for the job's pause before,
and its job has saved something; an engine is asked outside of any transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torchyard.compute import actions as computes
from torchyard.compute.types import Compute
from torchyard.executors.executor import EngineRefused, EngineUnreachable
from torchyard.jobs.admission import gpus, machine, queue, queue_store, quota_checks, shares
from torchyard.jobs.files import artifacts
from torchyard.jobs.records import attempt_store, isolation, round_store, store
from torchyard.jobs.records.types import Job
from torchyard.jobs.scheduling import elastic_sizes, resizing
from torchyard.jobs.scheduling.queue_walk import Walk
from torchyard.jobs.services import Services
from torchyard.jobs.spec import elastic
from torchyard.shared.plurals import plural

_VIEW_S = 10.0
_MOST_NAMES = 3


@dataclass(frozen=True)
class _Growth:
    """How many nodes a job could have, and which they are, in words."""

    node_count: int
    free: str


def grow(services: Services, walk: Walk) -> None:
    """One round, after claiming, over the elastic attempts that have less than they may have."""
    with services.db.read() as connection:
        ids = round_store.elastic(connection)
    isolation.isolate_failures(ids, lambda job_id: _grow(services, walk, job_id))


def _grow(services: Services, walk: Walk, job_id: int) -> None:
    with services.db.read() as connection:
        job = store.job_by_id(connection, job_id)
        tries = attempt_store.attempts_of(connection, job_id)
        compute = computes.find(connection, job.workspace, job.compute)
    if compute is None or compute.deleting or not tries:
        return
    sizes = elastic.read(job.properties)
    if sizes is None or tries[-1].node_count >= sizes.max_nodes:
        return
    if not resizing.is_due(services.clock, job, tries[-1]):
        return
    if not compute.is_local:
        ran_s = (services.clock.now() - tries[-1].created_at).total_seconds()
        try:
            # One from before the attempt took its machines would count them as free.
            age_s = min(_VIEW_S, ran_s / 2)
            services.engines.describe(compute.engine, compute.settings, age_s)
        except (EngineUnreachable, EngineRefused):
            return
    growth = _growth(services, walk, job, compute)
    if growth is not None and _has_saved(services, job):
        resizing.stop(services, tries[-1], growth.node_count, growth.free)


def _has_saved(services: Services, job: Job) -> bool:
    """Whether the next attempt would find anything; without it, more nodes begin from the start."""
    return any(True for _ in artifacts.list_earlier(services, job))


def _growth(services: Services, walk: Walk, job: Job, compute: Compute) -> _Growth | None:
    """With how many nodes the job could go on; None when no more are free."""
    sizes = elastic.read(job.properties)
    assert sizes is not None
    with services.db.read() as connection:
        every = shares.read(connection, machine.bounds(services))
        free = dict(every.capacity)
        for attempt in queue_store.list_running(connection):
            free = queue.less(free, every.needs(attempt))
        # What others wait for is theirs, whenever they start.
        for head in walk.heads.values():
            free = queue.less(free, head.job.needs)
        each = every.needs(replace(job, node_count=1))
        more = min(sizes.max_nodes - job.node_count, queue.most_nodes(each, free))
        idle = elastic_sizes.idle_machines(services.engines, compute)
        if idle is not None:
            more = min(more, len(idle))
        for count in range(more, 0, -1):
            extra = replace(job, node_count=count)
            if quota_checks.waiting_reason(connection, extra, is_new=False):
                continue
            if gpus.waiting_reason(services.devices, connection, extra):
                continue
            names = [node.name for node in idle[:count]] if idle else []
            return _Growth(job.node_count + count, _free(compute.name, count, names))
    return None


def _free(compute: str, count: int, names: list[str]) -> str:
    if names:
        listed = ", ".join(f"`{name}`" for name in names[:_MOST_NAMES])
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"{plural('machine', count)} {listed}{more} {'is' if count == 1 else 'are'} free"
    nodes = "a node" if count == 1 else f"{count} nodes"
    return f"{nodes} of `{compute}` {'is' if count == 1 else 'are'} free"
