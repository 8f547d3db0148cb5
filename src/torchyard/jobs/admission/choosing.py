"""Choose a cluster for a job that leaves it open: `compute: auto`.

Owns: which of the workspace's clusters can hold a job now, which soonest, and the reason in words.
Leaves: what nodes take to shares.py, the queue of the cluster that was chosen to queue.py.
Always: chosen once, when the job is submitted, from what is free and queued then; never a cluster
that can't run the job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchyard.base.errors import InvalidSpec, TorchyardError
from torchyard.compute import actions as computes
from torchyard.compute.types import Compute
from torchyard.executors.executor import EngineCluster, EngineRefused, EngineUnreachable
from torchyard.executors.machine import Machine
from torchyard.jobs.admission import gpus, machine, queue, queue_store, shares
from torchyard.jobs.admission.queue import Running, Waiting
from torchyard.jobs.admission.shares import Shares
from torchyard.jobs.records import store
from torchyard.jobs.services import Services
from torchyard.jobs.spec.job_spec import JobSpec

AUTO = "auto"
_VIEW_S = 10.0
_MOST_REASONS = 3


@dataclass(frozen=True)
class Choice:
    """A cluster's name, and why it is that one."""

    compute: str
    reason: str


@dataclass(frozen=True)
class _Candidate:
    """A cluster that can run the job. `starts_in_s` is 0 when it can now, infinite when unknown;
    `load` is how many nodes are held or waited for, of each that it may have.
    """

    compute: Compute
    free: int
    starts_in_s: float
    load: float


def choose(services: Services, workspace: str, job: JobSpec, rehearsed: bool) -> Choice:
    """
    Raises:
        InvalidSpec: no cluster of the workspace can run it.
    """
    clusters = [compute for compute, _ in computes.list_in(services.db, workspace)]
    # This machine's nodes are there at once; then in the order of names.
    clusters.sort(key=lambda compute: (not compute.is_local, compute.name))
    refusals: list[str] = []
    able: list[tuple[Compute, EngineCluster | None]] = []
    for compute in clusters:
        try:
            able.append((compute, _check(services, compute, job, rehearsed)))
        except TorchyardError as error:
            refusals.append(f"`{compute.name}`: {error.message}")
    if not able:
        some = "; ".join(refusals[:_MOST_REASONS])
        raise InvalidSpec(
            f"no cluster of workspace `{workspace}` can run the job: {some}",
            "list them with `yard compute list`",
            code="no_compute",
            at=("compute",),
        )
    candidates = _candidates(services, workspace, able, job, rehearsed)
    now = next((candidate for candidate in candidates if not candidate.starts_in_s), None)
    if now is not None:
        compute = now.compute
        return Choice(
            compute.name,
            f"{now.free} of {compute.max_instances} nodes of `{compute.name}` are free",
        )
    soonest = min(candidates, key=lambda candidate: (candidate.starts_in_s, candidate.load))
    if math.isinf(soonest.starts_in_s):
        reason = f"no cluster can start it now, and `{soonest.compute.name}` has the least to do"
    else:
        reason = (
            f"no cluster can start it now, and `{soonest.compute.name}` can soonest, in at most "
            f"{soonest.starts_in_s / 60:.0f} min"
        )
    return Choice(soonest.compute.name, reason)


def _check(
    services: Services, compute: Compute, job: JobSpec, rehearsed: bool
) -> EngineCluster | None:
    """What its engine says, None of a local cluster.

    Raises:
        TorchyardError: why it can never run the job.
    """
    if compute.deleting:
        raise InvalidSpec("it is being deleted", "use another")
    maximum, view = compute.max_instances, None
    if not compute.is_local:
        try:
            view = services.engines.describe(compute.engine, compute.settings, _VIEW_S)
        except (EngineUnreachable, EngineRefused) as error:
            raise InvalidSpec(error.message, error.hint) from error
        maximum = min(maximum, view.most_nodes or maximum)
    if job.fewest_nodes > maximum:
        raise InvalidSpec(f"it has at most {maximum} nodes", "use fewer")
    processes = (job.fewest_nodes, job.process_count_per_instance)
    gpus.check(services.devices, compute, *processes, job.properties, rehearsed)
    return view


def _candidates(
    services: Services,
    workspace: str,
    able: list[tuple[Compute, EngineCluster | None]],
    job: JobSpec,
    rehearsed: bool,
) -> list[_Candidate]:
    now = services.clock.now()
    with services.db.read() as connection:
        every = shares.read(connection, machine.bounds(services))
        active = queue_store.list_running(connection)
        queued_nodes = store.nodes_wanted(connection, now)
    running = [every.running(attempt, now.timestamp()) for attempt in active]
    free = dict(every.capacity)
    for attempt in running:
        free = queue.less(free, attempt.holds)
    candidates = []
    for compute, view in able:
        cluster_key = (workspace, compute.name)
        nodes_name = shares.nodes_of(*cluster_key)
        waiting = _as_waiting(services.devices, every, cluster_key, compute, job, rehearsed)
        left = free.get(nodes_name, 0)
        idle = left if view is None else _idle(view, left)
        queued = queued_nodes.get(cluster_key, 0)
        fits = queue.fits(free, waiting.needs) and idle >= job.fewest_nodes
        starts_in_s = 0.0 if fits and not queued else _starts_in_s(waiting, free, running, queued)
        busy = every.capacity.get(nodes_name, 0) - left + queued
        candidates.append(
            _Candidate(compute, max(0, idle), starts_in_s, busy / compute.max_instances)
        )
    return candidates


def _as_waiting(
    devices: Machine,
    every: Shares,
    cluster_key: shares.ClusterKey,
    compute: Compute,
    job: JobSpec,
    rehearsed: bool,
) -> Waiting:
    each = dict(every.per_node.get(cluster_key, {}))
    if compute.is_local and shares.GPUS in every.capacity:
        processes = (job.fewest_nodes, job.process_count_per_instance)
        each[shares.GPUS] = gpus.per_node(devices, compute, *processes, job.properties, rehearsed)
    rank = queue.priority_rank_of(job.job_tier, job.priority)
    needs = queue.times(each, job.fewest_nodes)
    return Waiting(
        0, "/".join(cluster_key), needs, rank, job.timeout_s, every.is_low(cluster_key, rank)
    )


def _idle(view: EngineCluster, left: int) -> int:
    """How many of an engine's machines nobody uses; all that are left where it names none."""
    if not view.nodes:
        return left
    return min(left, sum(node.state == "idle" for node in view.nodes))


def _starts_in_s(
    waiting: Waiting, free: queue.Amounts, running: list[Running], queued: int
) -> float:
    """By the limits of what runs; infinite when unknown, or when others wait before it."""
    starts_in_s = None if queued else queue.starts_in_s(waiting, free, running)
    return math.inf if starts_in_s is None else max(1.0, starts_in_s)
