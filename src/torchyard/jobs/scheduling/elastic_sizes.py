"""How many nodes an elastic job may have.

Owns: what quotas, devices and engines leave for it beside free nodes, and the words of it.
Leaves: the order of the queue to queue_walk.py, holding nodes to claims.py, when the size of a
running one changes to growing.py and shrinking.py.
Always: never fewer than its `min_nodes` and never more than its `max_nodes`; asks no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from torchyard.compute.types import Compute
from torchyard.executors.engines import Engines
from torchyard.executors.executor import EngineNode
from torchyard.executors.machine import Machine
from torchyard.jobs.admission import gpus, quota_checks
from torchyard.jobs.attempts import losses, root_cause
from torchyard.jobs.records.types import Attempt, Job
from torchyard.jobs.spec.elastic import Elastic
from torchyard.shared.plurals import plural


def with_nodes(devices: Machine, compute: Compute | None, job: Job, count: int) -> Job:
    """The job as it is with so many nodes."""
    sized = replace(job, node_count=count)
    return sized if compute is None else replace(sized, gpus=gpus.of_job(devices, compute, sized))


def fitting(
    devices: Machine,
    connection: Connection,
    compute: Compute | None,
    job: Job,
    sizes: Elastic,
    maximum: int,
) -> Job:
    """The job with the most nodes, up to `maximum`, that quotas and devices allow, or fewest."""
    for count in range(maximum, sizes.min_nodes, -1):
        sized = with_nodes(devices, compute, job, count)
        if quota_checks.waiting_reason(connection, sized):
            continue
        if not gpus.waiting_reason(devices, connection, sized):
            return sized
    return with_nodes(devices, compute, job, sizes.min_nodes)


def idle_machines(engines: Engines, compute: Compute | None) -> Sequence[EngineNode] | None:
    """The machines of an engine that nobody uses, as it said last; None where nothing is known."""
    if compute is None or compute.is_local:
        return None
    view = engines.last_view(compute.engine, compute.settings)
    if view is None or not view.nodes:
        return None
    return [node for node in view.nodes if node.state == "idle"]


def machines(engines: Engines, compute: Compute | None, before: Attempt | None) -> int | None:
    """How many machines of an engine the next attempt finds free; None where nothing is known.

    Those of the attempt before are free by now, though the engine may not have said so yet.
    """
    if compute is None or compute.is_local:
        return None
    code = before.error.code if before is not None and before.error is not None else ""
    if before is not None and before.error is not None:
        if code == root_cause.RESIZED:
            return int(before.error.details.get(losses.NEXT_NODES, before.node_count))
        if code in losses.CODES:
            return before.node_count - len(before.error.details.get(losses.LOST, ()))
        if code != root_cause.PREEMPTED:
            return before.node_count
    idle = idle_machines(engines, compute)
    return None if idle is None else len(idle)


def left_after_giving(before: Attempt | None) -> int | None:
    """How many nodes a job goes on with that gave some away; None when it did not."""
    if before is None or before.error is None or before.error.code != root_cause.RESIZED:
        return None
    count = int(before.error.details.get(losses.NEXT_NODES, before.node_count))
    return count if count < before.node_count else None


def notice(sizes: Elastic, attempt: Attempt, before: Attempt | None) -> str:
    """What is told of the number of nodes as an attempt begins."""
    nodes = f"{attempt.node_count} {plural('node', attempt.node_count)}"
    if before is None:
        return f"starts with {nodes}; it may have {sizes.min_nodes} to {sizes.max_nodes}"
    return f"goes on with {nodes}: {_because(before)}"


def _because(before: Attempt) -> str:
    error = before.error
    if error is None:
        return f"attempt {before.number} ended"
    if error.code == root_cause.PREEMPTED:
        return error.message
    return str(error.details.get(losses.BECAUSE) or f"attempt {before.number} failed")
