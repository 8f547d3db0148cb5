"""Check jobs against quotas: never, not now, or yes.

Owns: what a job would use and what is in use, against the limits of workspaces/quotas.py.
Leaves: setting limits to workspaces/, holding nodes to compute/, the order of the queue to
queue.py, what jobs store to storage_use.py.
Always: a job that can never fit is refused when it is submitted, with the limit's name and how
to ask for more; a job that can fit later waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from torchyard.base.errors import LimitExceeded
from torchyard.compute import actions as computes
from torchyard.jobs.admission import quota_store, storage_use
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices
from torchyard.workspaces import quotas
from torchyard.workspaces.types import ALL, Limit

_WORDS = {"nodes": "nodes", "gpus": "GPUs", "cores": "cores", "jobs": "jobs"}


@dataclass(frozen=True)
class Needs:
    """What one job would hold while it runs; `timeout_s` 0 means without a limit."""

    user: str
    workspace: str
    amounts: Mapping[str, int]
    timeout_s: float = 0.0


def of_job(connection: Connection, job: Job) -> Needs:
    """The needs of a stored job."""
    return needs(connection, job.workspace, job.owner, job.compute, job.node_count)


def needs(
    connection: Connection,
    workspace: str,
    user: str,
    compute: str,
    node_count: int,
    timeout_s: float = 0.0,
) -> Needs:
    """The needs of a job with this many nodes of a compute."""
    cores, gpus = computes.per_node(connection, workspace, compute)
    amounts = {
        "nodes": node_count,
        "gpus": node_count * gpus,
        "cores": node_count * cores,
        "jobs": 1,
    }
    return Needs(user, workspace, amounts, timeout_s)


def waiting_reason(connection: Connection, job: Job, is_new: bool = True) -> str:
    """Why quotas keep a queued job from starting now, in one sentence; empty if they do not.

    Args:
        is_new: False for more nodes of a job that runs already.
    """
    limits = quotas.limits(connection, job.workspace)
    if not limits:
        return ""
    needs = of_job(connection, job)
    for limit in quotas.held_by(limits, job.owner):
        if limit.name not in needs.amounts or (limit.name == "jobs" and not is_new):
            continue
        in_use = used(connection, job.workspace, "" if limit.user == ALL else job.owner)
        if in_use[limit.name] + needs.amounts[limit.name] > limit.most:
            return _waits(limit, needs, in_use[limit.name])
    return ""


def refuse_never(connection: Connection, needs: Needs) -> None:
    """
    Raises:
        LimitExceeded: the job could not start even if nothing else ran.
    """
    for limit in quotas.held_by(quotas.limits(connection, needs.workspace), needs.user):
        shortage = _never(connection, limit, needs)
        if shortage:
            sentence, more = shortage
            raise LimitExceeded(
                f"{sentence}; quota `{limit.name}` of {_whose(limit, needs.user)} in workspace "
                f"`{needs.workspace}` is {limit.most}",
                f"ask for more with `yard quota request {limit.name}={more}`"
                + (", or request less in the job" if limit.name != "storage_bytes" else
                   ", or delete old jobs with `yard job delete`"),
                code="quota_exceeded",
            )  # fmt: skip


def longest_s(limits: Sequence[Limit], user: str) -> int:
    """The run time that a workspace's quotas allow one job; 0 means without a limit."""
    own_limits = quotas.held_by(limits, user)
    return min((limit.most for limit in own_limits if limit.name == "run_time_s"), default=0)


def used(connection: Connection, workspace: str, user: str = "") -> dict[str, int]:
    """nodes, gpus, cores and jobs that hold nodes now; of everyone when `user` is empty."""
    total = dict.fromkeys(_WORDS, 0)
    for compute, job_count, node_count in quota_store.holding(connection, workspace, user):
        cores, gpus = computes.per_node(connection, workspace, compute)
        total["jobs"] += job_count
        total["nodes"] += node_count
        total["cores"] += node_count * cores
        total["gpus"] += node_count * gpus
    return total


def use_of(services: FileServices, workspace: str, user: str = "") -> dict[str, int]:
    """What is in use now, storage too; of everyone when `user` is empty."""
    storage_use.measure(services, workspace)
    with services.db.read() as connection:
        total = used(connection, workspace, user)
        return {**total, "storage_bytes": storage_use.known(connection, workspace, user)}


def _never(connection: Connection, limit: Limit, needs: Needs) -> tuple[str, int] | None:
    """What is too much, and which limit would suffice."""
    if limit.name == "storage_bytes":
        user = "" if limit.user == ALL else needs.user
        stored_bytes = storage_use.known(connection, needs.workspace, user)
        if stored_bytes < limit.most:
            return None
        return f"{stored_bytes} bytes of jobs are stored already", 2 * stored_bytes
    if limit.name == "run_time_s":
        if needs.timeout_s <= limit.most:
            return None
        return f"the job requests {needs.timeout_s:.0f} s of run time", int(needs.timeout_s)
    amount = needs.amounts[limit.name]
    if amount <= limit.most:
        return None
    return f"the job needs {amount} {_words(limit.name, amount)}", amount


def _waits(limit: Limit, needs: Needs, in_use: int) -> str:
    amount = needs.amounts[limit.name]
    sentence = (
        f"needs {amount} {_words(limit.name, amount)}; {_whose(limit, needs.user)} "
        f"{'uses' if limit.user != ALL else 'is using'} {in_use} of the {limit.most} that quota "
        f"`{limit.name}` of workspace `{needs.workspace}` allows"
    )
    if amount > limit.most:
        sentence += f": ask for more with `yard quota request {limit.name}={amount}`"
    return sentence


def _whose(limit: Limit, user: str) -> str:
    return "everyone together" if limit.user == ALL else f"`{user}`"


def _words(name: str, amount: int) -> str:
    return _WORDS[name][:-1] if amount == 1 else _WORDS[name]
