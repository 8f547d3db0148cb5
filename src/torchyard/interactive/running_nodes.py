"""The nodes of a running job that people can get into.

Owns: which node and rank is meant, whether it runs, opening a channel to it.
Leaves: who may do that to the routes, the tunnel to tunnels/.
Always: a job that does not run is refused by what it does instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.jobs import actions
from torchyard.jobs.attempts import running
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.services import RecordServices, Services
from torchyard.tunnels.tunnel import Channel

_WAITING = (Status.NOT_STARTED, Status.PREPARING, Status.QUEUED, Status.PROVISIONING)


@dataclass(frozen=True)
class RunningNode:
    """A node of a job's current attempt; `local_rank` counts on the node."""

    attempt_id: str
    node: int
    local_rank: int
    rank: int


def find(
    services: RecordServices, workspace: str, name: str, rank: int | None, node: int | None
) -> tuple[Job, RunningNode]:
    """
    Args:
        rank: of all ranks of the job; None is the first of `node`, or of the job.

    Raises:
        NotFound: no such job.
        Conflict: its ranks do not run.
        InvalidInput: it has no such rank or node.
    """
    job = actions.get(services, workspace, name)
    attempt = running.attempt_of(services.db, job) if job.has_ranks else None
    if attempt is None or job.status not in running.STATUSES:
        raise _not_running(job)
    per_node = job.processes_per_node
    if node is not None and not 0 <= node < job.node_count:
        raise InvalidInput(
            f"job `{name}` has no node {node}", f"its nodes are 0 to {job.node_count - 1}"
        )
    if rank is None:
        rank = (node or 0) * per_node
    world_size = job.node_count * per_node
    if not 0 <= rank < world_size:
        raise InvalidInput(
            f"job `{name}` has no rank {rank}", f"its ranks are 0 to {world_size - 1}"
        )
    if node is not None and rank // per_node != node:
        raise InvalidInput(
            f"rank {rank} of job `{name}` is on node {rank // per_node}, not on node {node}",
            "name one of them",
        )
    return job, RunningNode(attempt, rank // per_node, rank % per_node, rank)


async def open_channel(
    services: Services, running_node: RunningNode, request: Mapping[str, Any]
) -> Channel:
    """
    Raises:
        Unreachable: the node does not respond.
        Conflict: too much is open there.
    """
    key = actions.attempt_key(running_node.attempt_id)
    return await services.tunnels.channel(
        (running_node.attempt_id, running_node.node), request, lambda: services.signals.notify(key)
    )


def _not_running(job: Job) -> Conflict:
    hint = f"see `yard job show -n {job.name}`"
    if job.status in _WAITING:
        hint = f"wait until it runs: {hint}"
    elif job.status.ended and job.has_ranks:
        hint = (
            "set `torchyard: {hold: 30m}` in the job file to look around after its script has "
            "ended; `yard job download` brings its files"
        )
    return Conflict(
        f"job `{job.name}` is {job.status.value}: none of its ranks runs",
        hint,
        code="job_not_running",
    )
