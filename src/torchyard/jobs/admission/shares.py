"""Compute what the nodes of every cluster take of what they share.

Owns: the names of what is limited, and how much of each a node takes.
Leaves: clusters and the machine's limits to compute/, decisions to queue.py.
Always: local clusters of every workspace are counted, since they run on the same machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from torchyard.compute import actions as computes
from torchyard.compute.types import Compute
from torchyard.jobs.admission import queue
from torchyard.jobs.admission.queue import Amounts, Running
from torchyard.jobs.admission.queue_store import Queued, RunningAttempt
from torchyard.jobs.records.types import Job

LOW_PRIORITY = "low_priority"
GPUS = "gpus"
ClusterKey = tuple[str, str]


@dataclass(frozen=True)
class Shares:
    """`per_node` by workspace and cluster; `low` are the clusters of the low-priority tier,
    `elsewhere` those whose nodes are not this machine's.
    """

    capacity: Amounts
    per_node: Mapping[ClusterKey, Amounts]
    low: frozenset[ClusterKey]
    elsewhere: frozenset[ClusterKey] = frozenset()

    def needs(self, of: RunningAttempt | Queued | Job) -> dict[str, int]:
        """What all nodes of a job take together."""
        cluster_key = (of.workspace, of.compute)
        each = dict(self.per_node.get(cluster_key, {}))
        if of.gpus and GPUS in self.capacity and cluster_key not in self.elsewhere:
            each[GPUS] = of.gpus
        return queue.times(each, of.node_count)

    def is_low(self, cluster_key: ClusterKey, priority_rank: int) -> bool:
        return priority_rank >= queue.SPOT_RANK or cluster_key in self.low

    def running(self, attempt: RunningAttempt, now_s: float) -> Running:
        """A running attempt, as the queue sees it.

        Args:
            now_s: seconds since the epoch.
        """
        cluster_key = (attempt.workspace, attempt.compute)
        return Running(
            self.needs(attempt),
            queue.ends_in_s(attempt.limit_s, now_s - attempt.created_at.timestamp()),
            self.is_low(cluster_key, attempt.priority_rank),
            leaving=bool(attempt.order_reason),
        )


def read(connection: Connection, machine: Amounts) -> Shares:
    """
    Args:
        machine: what the machine has of what its clusters share; see machine.py.
    """
    return of(computes.clusters(connection), machine)


def of(clusters: Iterable[Compute], machine: Amounts) -> Shares:
    capacity = dict(machine)
    per_node: dict[ClusterKey, Amounts] = {}
    low, elsewhere = set(), set()
    for cluster in clusters:
        cluster_key = (cluster.workspace, cluster.name)
        nodes_name = nodes_of(*cluster_key)
        capacity[nodes_name] = 0 if cluster.deleting else cluster.max_instances
        takes = _of_machine(cluster, machine) if cluster.is_local else {}
        per_node[cluster_key] = {nodes_name: 1, **takes}
        if not cluster.is_local:
            elsewhere.add(cluster_key)
        if cluster.tier == LOW_PRIORITY:
            low.add(cluster_key)
    return Shares(capacity, per_node, frozenset(low), frozenset(elsewhere))


def nodes_of(workspace: str, compute: str) -> str:
    """The name of a cluster's nodes among all limits."""
    return f"nodes of {workspace}/{compute}"


def _of_machine(cluster: Compute, machine: Amounts) -> dict[str, int]:
    """What one node takes of the machine, by the names that are limited there.

    Not GPUs: on a cluster without a size each job has its own number of them.
    """
    takes = {
        "nodes": 1,
        "cores": cluster.cores or 0,
        "memory_mb": (cluster.memory_bytes or 0) >> 20,
    }
    return {name: amount for name, amount in takes.items() if amount and name in machine}
