"""Clusters with the jobs on them.

Owns: what runs on each node, which jobs wait and why, scaling to what the queue needs, ending the
jobs of a deleted cluster.
Leaves: nodes to compute/, reasons for waiting to admission/waiting_reasons.py.
Always: deleting a cluster by force cancels its jobs, and each job says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import to_text
from torchyard.base.db import Database
from torchyard.base.errors import Conflict
from torchyard.compute import actions as computes
from torchyard.compute import scaling
from torchyard.executors.executor import EngineCluster, EngineNode, EngineRefused, EngineUnreachable
from torchyard.jobs import actions
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.types import Job, JobError, Status
from torchyard.jobs.services import RecordServices, Services
from torchyard.shared.plurals import plural

_MOST_WAITING = 20
_VIEW_S = 5.0


@dataclass(frozen=True)
class ClusterNode:
    """One node of a cluster and what it does. `rank` is its place in the job's own nodes."""

    name: str
    state: str
    since: str
    made_at: str
    job: str
    owner: str
    rank: int | None
    devices: list[dict[str, Any]]


@dataclass(frozen=True)
class EngineView:
    """What an engine says of a cluster, and where its nodes look for the server."""

    cluster: EngineCluster
    server_urls: list[str]


@dataclass(frozen=True)
class WaitingJob:
    """A queued job, and why it has no nodes yet."""

    job: str
    owner: str
    node_count: int
    since: str
    why: str


def resize_clusters(services: RecordServices) -> None:
    """Resize every cluster to what its queue needs."""
    scaling.resize_clusters(
        services.db,
        services.clock,
        lambda connection: store.nodes_wanted(connection, services.clock.now()),
    )


def nodes(db: Database, workspace: str, name: str) -> list[ClusterNode]:
    """
    Raises:
        NotFound: the cluster does not exist.
    """
    compute = computes.get(db, workspace, name)
    there = computes.nodes_of(db, compute)
    with db.read() as connection:
        ids = {node.attempt_id for node in there if node.attempt_id}
        tries = {attempt.id: attempt for attempt in attempt_store.attempts_with(connection, ids)}
        ranks = {id: computes.slots_of(connection, id) for id in ids}
        jobs = {
            attempt.id: store.job_by_id(connection, attempt.job_id) for attempt in tries.values()
        }
    views = []
    for node in there:
        view = ClusterNode(
            f"{name}-{node.number}", node.state(compute.max_instances),
            to_text(node.since), to_text(node.made_at), job="", owner="", rank=None, devices=[],
        )  # fmt: skip
        attempt = tries.get(node.attempt_id)
        if attempt is not None and node.number in ranks[attempt.id]:
            rank = ranks[attempt.id].index(node.number)
            devices = ((attempt.handle or {}).get("body") or {}).get("devices") or []
            job = jobs[attempt.id]
            view = replace(
                view,
                state="preparing" if job.status is Status.PROVISIONING else view.state,
                job=job.name,
                owner=job.owner,
                rank=rank,
                devices=devices[rank] if rank < len(devices) else [],
            )
        views.append(view)
    return views


def engine_view(
    services: Services, workspace: str, name: str, max_age_s: float = 0.0
) -> EngineView:
    """What a cluster's engine says of it.

    Raises:
        NotFound: the cluster does not exist.
        Conflict: the engine does not answer, or its nodes can't reach this server.
    """
    compute = computes.get(services.db, workspace, name)
    if compute.is_local:
        return EngineView(EngineCluster(compute.engine, "", (), compute.max_instances), [])
    try:
        view = services.engines.describe(compute.engine, compute.settings, max_age_s)
    except (EngineUnreachable, EngineRefused) as error:
        code = "engine_refused" if isinstance(error, EngineRefused) else "engine_unreachable"
        raise Conflict(f"compute `{name}`: {error.message}", error.hint, code=code) from error
    return EngineView(view, services.for_nodes.urls_for(compute.settings))


def machines(services: Services, workspace: str, name: str) -> list[EngineNode]:
    """The machines of a cluster's engine; none where it is local, or does not answer."""
    compute = computes.get(services.db, workspace, name)
    if compute.is_local:
        return []
    try:
        view = services.engines.describe(compute.engine, compute.settings, _VIEW_S)
    except (EngineUnreachable, EngineRefused):
        return []
    return list(view.nodes)


def waiting_at(services: Services, workspace: str, name: str) -> tuple[list[WaitingJob], int]:
    """The first jobs that wait for nodes of a cluster, and how many wait in all."""
    computes.get(services.db, workspace, name)
    with services.db.read() as connection:
        queued = store.queued_at(connection, workspace, name)
        since = {
            job.id: store.queued_since(connection, job.id) or job.created_at
            for job in queued[:_MOST_WAITING]
        }
    views = [
        WaitingJob(
            job.name,
            job.owner,
            job.node_count,
            to_text(since[job.id]),
            waiting_reasons.describe(services, job),
        )
        for job in queued[:_MOST_WAITING]
    ]
    return views, len(queued)


def _busy(name: str, live: Sequence[Job]) -> Conflict:
    some = ", ".join(f"`{job.name}`" for job in live[:3]) + (" …" if len(live) > 3 else "")
    return Conflict(
        f"compute `{name}` has {len(live)} {plural('job', len(live))} that "
        f"{'has' if len(live) == 1 else 'have'} not ended: {some}",
        "wait for them, or cancel them with `--force`",
        code="compute_busy",
    )


def delete(services: Services, workspace: str, name: str, who: str, *, force: bool = False) -> bool:
    """Delete a cluster; with `force` its jobs are canceled. Return whether it is gone already.

    Raises:
        NotFound: there is none of that name.
        Conflict: it is the built-in one, or jobs run on it or wait for it.
    """
    live: list[Job] = []

    def check_jobs(connection: Connection) -> None:
        # Jobs submitted from now on are refused: the cluster is being deleted.
        live[:] = store.live_at(connection, workspace, name)
        if live and not force:
            raise _busy(name, live)

    is_removed = computes.delete(
        services.db, services.clock, workspace, name, force=force, check=check_jobs
    )
    error = JobError(
        "compute_deleted",
        f"compute `{name}` was deleted by `{who}`",
        "run it on another compute: `yard compute list`",
    )
    for job in live:
        actions.cancel(services, workspace, job.name, error)
    return is_removed
