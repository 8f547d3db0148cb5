"""Automatic scaling of clusters.

Owns: when an idle node is removed, the minimum that stays, the counts over time.
Leaves: growing for a job to nodes.py, which jobs wait to jobs/.
Always: never above the maximum, never below the minimum for longer than a round; a node that a
waiting job could use is not removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.compute import accounts, store
from torchyard.compute.types import Compute, Node, Sample
from torchyard.shared.plurals import plural

KEPT = timedelta(days=30)
# By workspace and cluster.
Wanted = Callable[[Connection], Mapping[tuple[str, str], int]]


def resize_clusters(db: Database, clock: Clock, demand_of: Wanted) -> None:
    """Resize every cluster that needs it.

    Args:
        demand_of: returns how many nodes the waiting jobs need.
    """
    now = clock.now()
    with db.read() as connection:
        scaled = store.scaling(connection)
        demand = demand_of(connection) if scaled else {}
        due = [
            compute
            for compute in scaled
            if compute.deleting
            or _change(connection, compute, demand.get(_key(compute), 0), now) != ([], [])
        ]
    for compute in due:
        with db.write() as connection:
            current = store.get(connection, compute.workspace, compute.name)
            if current is not None:
                settle(connection, current, now, demand.get(_key(current), 0))


def settle(connection: Connection, compute: Compute, now: datetime, requested: int = 0) -> None:
    """Bring a cluster to its target size; one that is being deleted goes with its last node."""
    leaving, coming = _change(connection, compute, requested, now)
    retire(connection, compute, leaving, now)
    store.make(connection, compute.workspace, compute.name, coming, now)
    idle, busy = store.numbers(connection, compute.workspace, compute.name)
    if compute.deleting and not busy:
        store.drop(connection, compute.workspace, compute.name)
        return
    if leaving or coming:
        reason = f"{len(coming)} for the minimum" if coming else _why_leaving(compute, len(leaving))
        note(connection, compute, len(idle) + len(busy), len(busy), reason, now)
        store.forget_samples(connection, now - KEPT)


def retire(
    connection: Connection, compute: Compute, numbers: Collection[int], now: datetime
) -> None:
    """Remove idle nodes, and record how long they existed."""
    if not numbers:
        return
    nodes = store.nodes_in(connection, compute.workspace, compute.name)[compute.name]
    spans = [(node.made_at, now) for node in nodes if node.number in numbers]
    accounts.charge(connection, compute.workspace, compute.name, existed=spans)
    store.unmake(connection, compute.workspace, compute.name, numbers)


def note(
    connection: Connection, compute: Compute, current: int, running: int, reason: str, now: datetime
) -> None:
    """Record the current number of nodes."""
    machines = None
    if not compute.is_local:
        machines = store.last_machines(connection, compute.workspace, compute.name)
    sample = Sample(now, current, running, target(compute, current), reason, machines)
    store.add_sample(connection, compute.workspace, compute.name, sample)


def note_machines(connection: Connection, compute: Compute, machines: int, now: datetime) -> None:
    """Record how many machines a cluster's engine has."""
    current, running = store.count_in(connection, compute.workspace, compute.name)
    reason = f"{compute.engine} has {machines} {plural('machine', machines)}"
    sample = Sample(now, current, running, target(compute, current), reason, machines)
    store.add_sample(connection, compute.workspace, compute.name, sample)
    store.forget_samples(connection, now - KEPT)


def target(compute: Compute, current: int) -> int:
    """How many nodes the cluster should have: the current number, within the limits, as idle
    nodes wait for their time-out; a node above the maximum leaves with its job.
    """
    if compute.deleting:
        return 0
    return min(compute.max_instances, max(compute.min_instances, current))


def _change(
    connection: Connection, compute: Compute, requested: int, now: datetime
) -> tuple[list[int], list[int]]:
    """The numbers of the nodes to remove and to make."""
    nodes = store.nodes_in(connection, compute.workspace, compute.name)[compute.name]
    idle = sorted((n for n in nodes if not n.attempt_id), key=lambda n: n.number, reverse=True)
    busy = len(nodes) - len(idle)
    if compute.deleting:
        return [node.number for node in idle], []
    leaving: list[int] = []
    for node in idle:
        left = len(nodes) - len(leaving)
        needed = left <= compute.min_instances or len(idle) - len(leaving) <= requested
        if left > compute.max_instances or (_is_over(compute, node, now) and not needed):
            leaving.append(node.number)
    missing = min(compute.min_instances, compute.max_instances) - busy - len(idle) + len(leaving)
    numbers = {node.number for node in nodes}
    free = [number for number in range(compute.max_instances) if number not in numbers]
    return leaving, free[: max(0, missing)]


def _is_over(compute: Compute, node: Node, now: datetime) -> bool:
    return now - node.since >= timedelta(seconds=compute.idle_time_before_scale_down)


def _why_leaving(compute: Compute, count: int) -> str:
    if compute.deleting:
        return "the cluster is being deleted"
    return f"{count} idle for {compute.idle_time_before_scale_down} s"


def _key(compute: Compute) -> tuple[str, str]:
    return compute.workspace, compute.name
