"""Holding and releasing nodes for an attempt.

Owns: which nodes an attempt gets, and what happens to those it releases.
Leaves: which job gets nodes, and when, to jobs/; idle nodes to scaling.py.
Always: nodes are held all or none, and never more than the cluster's maximum; a node's number
is a database key, so two servers can't hold it twice. A node of the local engine exists as soon as
it is made, so a job's missing nodes are made when it gets them, not before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from torchyard.compute import accounts, scaling, store
from torchyard.compute.types import Compute


@dataclass(frozen=True)
class Choice:
    """The nodes that an attempt could have, or why it can't have them."""

    numbers: tuple[int, ...]
    why_not: str = ""


def try_hold(
    connection: Connection,
    workspace: str,
    name: str,
    count: int,
    attempt_id: str,
    now: datetime,
    avoided: Collection[int] = (),
) -> str:
    """Hold `count` nodes, all or none; returns the reason if not, else an empty string.

    Idle nodes are used first, then new ones are made up to the maximum.

    Args:
        avoided: nodes to use only if the cluster has too few others.
    """
    compute = store.get(connection, workspace, name)
    if compute is None or compute.deleting:
        return f"compute `{name}` was deleted"
    idle, busy = store.numbers(connection, workspace, name)
    choice = choose(compute, idle, busy, count, avoided)
    if choice.why_not:
        return choice.why_not
    made = [number for number in choice.numbers if number not in idle]
    taken = [number for number in choice.numbers if number in idle]
    left = sorted(set(idle) - set(taken))
    # Not empty only if avoided nodes stay idle beside new ones while the maximum was lowered.
    surplus = left[max(0, compute.max_instances - len(busy) - count) :]
    scaling.retire(connection, compute, surplus, now)
    store.make(connection, workspace, name, made, now)
    store.mark(connection, workspace, name, taken, since=now, preempted=False)
    store.hold(connection, workspace, name, choice.numbers, attempt_id)
    current, running = len(left) - len(surplus) + len(busy) + count, len(busy) + count
    grown = f"a job takes {_nodes(count)}" + (f", {len(made)} of them new" if made else "")
    scaling.note(connection, compute, current, running, grown, now)
    return ""


def available_nodes(connection: Connection, workspace: str, name: str) -> int:
    """How many nodes could be held now: idle ones, and those not yet made."""
    compute = store.get(connection, workspace, name)
    if compute is None or compute.deleting:
        return 0
    return max(0, compute.max_instances - store.count_held(connection, workspace, name))


def release(connection: Connection, attempt_id: str, now: datetime) -> None:
    """Release every node of an attempt; those above the maximum are removed."""
    workspace, name, held = store.held_by(connection, attempt_id)
    store.release(connection, attempt_id)
    if not held:
        return
    accounts.charge(connection, workspace, name, held=[(since, now) for _, since in held.values()])
    store.mark(connection, workspace, name, held, since=now, preempted=False)
    compute = store.get(connection, workspace, name)
    if compute is None:
        spans = [(made_at, now) for made_at, _ in held.values()]
        accounts.charge(connection, workspace, name, existed=spans)
        store.unmake(connection, workspace, name, held)
        return
    idle, busy = store.numbers(connection, workspace, name)
    most = 0 if compute.deleting else max(0, compute.max_instances - len(busy))
    leaving = idle[most:]
    scaling.retire(connection, compute, leaving, now)
    reason = f"a job gives back {_nodes(len(held))}"
    if leaving:
        reason += f", {len(leaving)} above the maximum"
    current = len(idle) - len(leaving) + len(busy)
    scaling.note(connection, compute, current, len(busy), reason, now)


def preempt(connection: Connection, attempt_id: str) -> None:
    """Mark the nodes of an attempt that another job preempts."""
    workspace, name, held = store.held_by(connection, attempt_id)
    store.mark(connection, workspace, name, held, preempted=True)


def choose(
    compute: Compute,
    idle: Sequence[int],
    busy: Sequence[int],
    count: int,
    avoided: Collection[int] = (),
) -> Choice:
    """Which nodes an attempt of `count` would get: idle ones first, the lowest numbers first."""
    most, taken = compute.max_instances, set(busy)
    free = [number for number in range(most) if number not in taken]
    available = min(len(free), most - len(busy))
    others = [number for number in free if number not in avoided]
    suitable = most - sum(number < most for number in set(avoided))
    if available < count or (len(others) < count <= suitable):
        # Nodes that are leaving count as well: the cluster never has more than its maximum.
        return Choice(
            (),
            f"needs {_nodes(count)}; {len(busy)} of {most} nodes of `{compute.name}` are busy",
        )
    idle_numbers = set(idle)
    pool = others if len(others) >= count else free
    return Choice(tuple(sorted(sorted(pool, key=lambda n: (n not in idle_numbers, n))[:count])))


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
