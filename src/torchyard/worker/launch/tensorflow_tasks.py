"""The tasks of a TensorFlow job and their variables.

Owns: which process is which task, TF_CONFIG.
Leaves: ports to launch_ports.py and preflight/rendezvous.py, ending parameter servers to
node/node.py.
Always: tasks are assigned to the nodes round-robin, workers first, so that each node has some of
both; worker 0 is the chief, which is TensorFlow's default.

Source: TF_CONFIG as tf.distribute.cluster_resolver.TFConfigClusterResolver reads it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torchyard.shared.plan import LaunchPlan

WORKER, SERVER = "worker", "ps"


@dataclass(frozen=True)
class Task:
    kind: str
    index: int


def task_of(plan: LaunchPlan, node: int, local_rank: int) -> Task:
    number = local_rank * plan.node_count + node
    workers = plan.world_size - plan.parameter_servers
    return Task(WORKER, number) if number < workers else Task(SERVER, number - workers)


def only_servers_left(plan: LaunchPlan, node: int, finished: Collection[int]) -> bool:
    """Whether all workers of a node have succeeded; `finished` holds the local ranks that have."""
    tasks = {local: task_of(plan, node, local) for local in range(plan.processes_per_node)}
    return all(task.kind == SERVER or local in finished for local, task in tasks.items())


def variables(
    plan: LaunchPlan,
    node: int,
    local_rank: int,
    hosts: Sequence[str],
    ports: Sequence[Sequence[int]],
) -> dict[str, str]:
    """The variables of one process.

    Args:
        hosts: one address per node.
        ports: for each node, one port per process.
    """
    cluster: dict[str, list[str]] = {}
    for number in range(plan.world_size):
        owner, local = number % plan.node_count, number // plan.node_count
        kind = task_of(plan, owner, local).kind
        cluster.setdefault(kind, []).append(f"{hosts[owner]}:{ports[owner][local]}")
    task = task_of(plan, node, local_rank)
    config = {
        "cluster": cluster,
        "task": {"type": task.kind, "index": task.index},
        "environment": "cloud",
    }
    return {
        "TF_CONFIG": json.dumps(config),
        "AZ_BATCHAI_TASK_TYPE": task.kind,
        "AZ_BATCHAI_TASK_INDEX": str(task.index),
    }
