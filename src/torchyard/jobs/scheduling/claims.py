"""Claim nodes for a job.

Owns: whether a queued job still may start, its attempt, its way to Starting.
Leaves: which job comes next to queue_walk.py, nodes to compute/, quotas to
admission/quota_checks.py.
Always: runs in the caller's write transaction; a job that is refused has changed nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from torchyard.compute import actions as computes
from torchyard.jobs.admission import gpus, machine, queue, queue_store, quota_checks, shares
from torchyard.jobs.records import attempt_store, progress, store
from torchyard.jobs.records.types import Attempt, Job, Status, parse_job
from torchyard.jobs.scheduling import elastic_sizes
from torchyard.jobs.services import Services
from torchyard.jobs.spec import elastic
from torchyard.jobs.spec.elastic import Elastic

# How many nodes the queue leaves to the job that is claimed.
MostNodes = Callable[[], int]


@dataclass(frozen=True)
class Claim:
    """The result for a job: an attempt, or the reason why it has none.

    Attributes:
        reason: `quota`, `gone` or `waits`.
        size: of an elastic job, in nodes and GPUs of each.
    """

    attempt: Attempt | None = None
    reason: str = ""
    size: tuple[int, int] | None = None


def no_more_nodes() -> int:
    """An elastic job gets the fewest that it can begin with."""
    return 0


def claim(
    services: Services,
    connection: Connection,
    job_id: int,
    never_clean: Collection[str] = (),
    most_nodes: MostNodes = no_more_nodes,
) -> Claim:
    """
    Args:
        never_clean: attempts whose folders are never removed: no later attempt waits for them.
        most_nodes: how many the queue leaves to this job if it is elastic.

    Raises:
        LeaseLost: another server may have taken over.
    """
    services.membership.check(connection)
    job = store.job_if_any(connection, job_id)
    if job is None or job.status is not Status.QUEUED:
        return Claim(reason="gone")
    # The files of an earlier attempt are uploaded when it is cleaned up.
    tries = attempt_store.attempts_of(connection, job.id) if job.attempt else []
    if not all(before.clean or before.id in never_clean for before in tries):
        return Claim(reason="waits")
    if quota_checks.waiting_reason(connection, job):
        return Claim(reason="quota")
    if gpus.waiting_reason(services.devices, connection, job):
        return Claim(reason="waits")
    bounds = machine.bounds(services)
    if not _fits_machine(connection, job, bounds):
        return Claim(reason="waits")
    holding = computes.Holding(connection)
    sizes = elastic.read(job.properties)
    if sizes is None:
        return _hold(services, connection, holding, job)
    before = tries[-1] if tries else None
    sized = _sized(services, connection, holding, job, sizes, most_nodes(), before, bounds)
    result = _hold(services, connection, holding, sized)
    if result.attempt is None:
        return result
    message = elastic_sizes.notice(sizes, result.attempt, before)
    progress.notice(connection, job, message, result.attempt.created_at)
    return replace(result, size=(sized.node_count, sized.gpus))


def _sized(
    services: Services,
    connection: Connection,
    holding: computes.Holding,
    job: Job,
    sizes: Elastic,
    most_nodes: int,
    before: Attempt | None,
    bounds: queue.Amounts,
) -> Job:
    """An elastic job with as many nodes as are free and it may have.

    After a loss, the nodes that were lost are left out while there are enough others.
    """
    cluster_key = (job.workspace, job.compute)
    compute = computes.find(connection, *cluster_key)
    maximum = parse_job(job).spec.instance_count if before is None else sizes.max_nodes
    maximum = min(maximum, most_nodes, holding.free(*cluster_key, job.avoided_slots or ()))
    machines = elastic_sizes.machines(services.engines, compute, before)
    for limit in (machines, elastic_sizes.left_after_giving(before)):
        maximum = maximum if limit is None else min(maximum, limit)
    sized = elastic_sizes.fitting(services.devices, connection, compute, job, sizes, maximum)
    if holding.free(*cluster_key, job.avoided_slots or ()) < sized.node_count:
        sized = replace(sized, avoided_slots=None)
    if not _fits_machine(connection, sized, bounds):
        sized = elastic_sizes.with_nodes(services.devices, compute, sized, sizes.min_nodes)
    return sized


def _hold(services: Services, connection: Connection, holding: computes.Holding, job: Job) -> Claim:
    now = services.clock.now()
    attempt = Attempt(
        id=uuid.uuid4().hex,
        job_id=job.id,
        workspace=job.workspace,
        job_name=job.name,
        number=job.attempt + 1,
        node_count=job.node_count,
        created_at=now,
        server=services.membership.id or None,
        engine=holding.engine_of(job.workspace, job.compute),
    )
    reason = holding.try_hold(
        job.workspace, job.compute, job.node_count, attempt.id, now, job.avoided_slots or ()
    )
    if reason:
        return Claim(reason="waits")
    attempt_store.add_attempt(connection, attempt)
    progress.start_attempt(connection, job, attempt, now)
    return Claim(attempt)


def _fits_machine(connection: Connection, job: Job, bounds: queue.Amounts) -> bool:
    """Check again inside the transaction: another server may have claimed nodes since."""
    if not bounds:
        return True
    every = shares.read(connection, bounds)
    free: dict[str, int] = dict(bounds)
    for holder in queue_store.list_running(connection):
        free = queue.less(free, every.needs(holder))
    return queue.fits(free, every.needs(job))
