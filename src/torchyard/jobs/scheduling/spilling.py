"""Move queued jobs from a full cluster to the one that it spills over to.

Owns: which jobs move, what they are told.
Leaves: starting them there to claiming.py, the setting to executors/cluster_settings.py.
Always: a job moves only to nodes that are free for it, and never while a quota or a pause holds it;
it says where it went.
"""

from __future__ import annotations

from sqlalchemy import Connection

from torchyard.base.errors import TorchyardError
from torchyard.compute import actions as computes
from torchyard.compute.types import Compute
from torchyard.jobs.actions import job_key
from torchyard.jobs.admission import gpus, quota_checks
from torchyard.jobs.records import progress, store
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.services import Services
from torchyard.jobs.spec import rehearsal


def spill_over(services: Services) -> int:
    """One round, after claiming; return how many jobs moved."""
    with services.db.read() as connection:
        full = [cluster for cluster in computes.clusters(connection) if _target_of(cluster)]
        moves = [move for cluster in full for move in _moves(connection, services, cluster)]
    moved = 0
    for job_id, source, target in moves:
        moved += _move(services, job_id, source, target)
    if moved:
        services.wakeup.set()
    return moved


def _target_of(cluster: Compute) -> str:
    return str(cluster.settings.get("spill_over") or "")


def _moves(
    connection: Connection, services: Services, cluster: Compute
) -> list[tuple[int, Compute, Compute]]:
    """The jobs that wait at a cluster and find room at the other."""
    target = computes.find(connection, cluster.workspace, _target_of(cluster))
    if target is None or target.deleting or cluster.deleting:
        return []
    now = services.clock.now()
    cluster_key = (target.workspace, target.name)
    queued_there = store.nodes_wanted(connection, now).get(cluster_key, 0)
    free = computes.available_nodes(connection, *cluster_key) - queued_there
    free_here = computes.available_nodes(connection, cluster.workspace, cluster.name)
    moves = []
    for job in store.queued_at(connection, cluster.workspace, cluster.name):
        if free < 1:
            break
        if free_here >= job.node_count:
            free_here -= job.node_count  # it starts here, as soon as its turn comes
            continue
        pauses = job.retry_at is not None and job.retry_at > now
        if pauses or job.node_count > free or quota_checks.waiting_reason(connection, job):
            continue
        if _can_run(services, target, job):
            moves.append((job.id, cluster, target))
            free -= job.node_count
    return moves


def _can_run(services: Services, target: Compute, job: Job) -> bool:
    if not target.is_local:
        view = services.engines.last_view(target.engine, target.settings)
        if view is not None and view.most_nodes and job.node_count > view.most_nodes:
            return False
    rehearsed = rehearsal.is_rehearsed(job.properties)
    processes = (job.node_count, job.processes_per_node)
    try:
        gpus.check(services.devices, target, *processes, job.properties, rehearsed)
    except TorchyardError:
        return False
    return True


def _move(services: Services, job_id: int, source: Compute, target: Compute) -> bool:
    with services.db.write() as connection:
        job = store.job_if_any(connection, job_id)
        if job is None or job.status is not Status.QUEUED or job.compute != source.name:
            return False
        count = gpus.per_node(
            services.devices,
            target,
            job.node_count,
            job.processes_per_node,
            job.properties,
            rehearsal.is_rehearsed(job.properties),
        )
        # Nodes to avoid are those of the cluster that it leaves.
        store.change_job(connection, job.id, compute=target.name, gpus=count, avoided_slots=None)
        progress.notice(
            connection,
            job,
            f"`{source.name}` is full; the job runs on `{target.name}`, to which it spills over",
            services.clock.now(),
        )
    services.signals.notify(job_key(job))
    return True
