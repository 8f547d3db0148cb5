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
from itertools import islice

from sqlalchemy import Connection

from torchyard.compute import accounts, scaling, store
from torchyard.compute.types import LOCAL, Compute
from torchyard.shared.plurals import plural


@dataclass(frozen=True)
class Choice:
    """The nodes that an attempt could have, or why it can't have them."""

    numbers: tuple[int, ...]
    why_not: str = ""


class Holding:
    """Holds nodes for several attempts in one transaction: each cluster is read once.

    Nobody else may hold or release nodes in the transaction meanwhile.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._clusters: dict[tuple[str, str], _Cluster | None] = {}

    def try_hold(
        self,
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
        cluster = self._cluster(workspace, name)
        if cluster is None or cluster.compute.deleting:
            return f"compute `{name}` was deleted"
        compute, idle, busy = cluster.compute, cluster.idle, cluster.busy
        choice = choose(compute, idle, busy, count, avoided)
        if choice.why_not:
            return choice.why_not
        connection = self._connection
        taken = set(choice.numbers).intersection(idle)
        made = [number for number in choice.numbers if number not in taken]
        left = [number for number in idle if number not in taken]
        # Not empty only if avoided nodes stay idle beside new ones while the maximum was lowered.
        surplus = left[max(0, compute.max_instances - len(busy) - count) :]
        scaling.retire(connection, compute, surplus, now)
        store.make(connection, workspace, name, made, now)
        store.mark(connection, workspace, name, taken, since=now, preempted=False)
        store.hold(connection, workspace, name, choice.numbers, attempt_id)
        cluster.idle = left[: len(left) - len(surplus)]
        cluster.busy = sorted([*busy, *choice.numbers])
        current = len(cluster.idle) + len(cluster.busy)
        grown = f"a job takes {_nodes(count)}" + (f", {len(made)} of them new" if made else "")
        scaling.note(connection, compute, current, len(cluster.busy), grown, now)
        return ""

    def free(self, workspace: str, name: str, avoided: Collection[int] = ()) -> int:
        """How many nodes could be held now without those to be avoided."""
        cluster = self._cluster(workspace, name)
        if cluster is None or cluster.compute.deleting:
            return 0
        maximum, busy = cluster.compute.max_instances, set(cluster.busy)
        suitable = sum(n not in busy and n not in avoided for n in range(maximum))
        return max(0, min(suitable, maximum - len(busy)))

    def engine_of(self, workspace: str, name: str) -> str:
        """What runs the nodes of a cluster; `local` where it was deleted."""
        cluster = self._cluster(workspace, name)
        return LOCAL if cluster is None else cluster.compute.engine

    def _cluster(self, workspace: str, name: str) -> _Cluster | None:
        key = (workspace, name)
        if key not in self._clusters:
            compute = store.get(self._connection, workspace, name)
            self._clusters[key] = None
            if compute is not None:
                idle, busy = store.numbers(self._connection, workspace, name)
                self._clusters[key] = _Cluster(compute, idle, busy)
        return self._clusters[key]


@dataclass
class _Cluster:
    """A cluster and the numbers of its nodes, lowest first."""

    compute: Compute
    idle: list[int]
    busy: list[int]


def available_nodes(connection: Connection, workspace: str, name: str) -> int:
    """How many nodes could be held now: idle ones, and those not yet made."""
    compute = store.get(connection, workspace, name)
    if compute is None or compute.deleting:
        return 0
    return max(0, compute.max_instances - store.count_held(connection, workspace, name))


def release(connection: Connection, attempt_id: str, now: datetime) -> None:
    """Release every node of an attempt; those above the maximum are removed."""
    slots = store.held_by(connection, attempt_id)
    if slots is None:
        return
    store.release(connection, attempt_id)
    workspace, name, nodes = slots
    accounts.charge(
        connection, workspace, name, busy_spans=[(since, now) for _, since in nodes.values()]
    )
    compute = store.get(connection, workspace, name)
    if compute is None:
        made = [(made_at, now) for made_at, _ in nodes.values()]
        accounts.charge(connection, workspace, name, existed=made)
        store.unmake(connection, workspace, name, nodes)
        return
    there, busy = store.count_in(connection, workspace, name)
    store.mark(connection, workspace, name, nodes, since=now, preempted=False)
    reason = f"a job gives back {_nodes(len(nodes))}"
    if there > compute.max_instances or compute.deleting:
        idle, _ = store.numbers(connection, workspace, name)
        leaving = idle[0 if compute.deleting else max(0, compute.max_instances - busy) :]
        scaling.retire(connection, compute, leaving, now)
        if leaving:
            reason += f", {len(leaving)} above the maximum"
            there -= len(leaving)
    scaling.note(connection, compute, there, busy, reason, now)


def preempt(connection: Connection, attempt_id: str) -> None:
    """Mark the nodes of an attempt that another job preempts."""
    slots = store.held_by(connection, attempt_id)
    if slots is not None:
        store.mark(connection, slots.workspace, slots.compute, slots.nodes, preempted=True)


def choose(
    compute: Compute,
    idle: Sequence[int],
    busy: Sequence[int],
    count: int,
    avoided: Collection[int] = (),
) -> Choice:
    """Which nodes an attempt of `count` would get: idle ones first, the lowest numbers first."""
    maximum, taken = compute.max_instances, set(busy)
    if not avoided:
        return _choose_any(compute, idle, taken, count)
    free = [number for number in range(maximum) if number not in taken]
    available = min(len(free), maximum - len(busy))
    others = [number for number in free if number not in avoided]
    suitable = maximum - sum(number < maximum for number in set(avoided))
    if available < count or (len(others) < count <= suitable):
        return _too_few(compute, len(busy), count)
    idle_numbers = set(idle)
    pool = others if len(others) >= count else free
    return Choice(tuple(sorted(sorted(pool, key=lambda n: (n not in idle_numbers, n))[:count])))


def _choose_any(compute: Compute, idle: Sequence[int], busy: Collection[int], count: int) -> Choice:
    """As `choose`, where no node is avoided."""
    maximum = compute.max_instances
    if maximum - len(busy) < count:
        return _too_few(compute, len(busy), count)
    numbers = [number for number in idle if number < maximum][:count]
    if len(numbers) < count:
        there = {*idle, *busy}
        new = (number for number in range(maximum) if number not in there)
        numbers += islice(new, count - len(numbers))
    return Choice(tuple(sorted(numbers)))


def _too_few(compute: Compute, busy_count: int, count: int) -> Choice:
    # Nodes that are leaving count as well: the cluster never has more than its maximum.
    return Choice(
        (),
        f"needs {_nodes(count)}; {busy_count} of {compute.max_instances} nodes of "
        f"`{compute.name}` are busy",
    )


def _nodes(count: int) -> str:
    return f"{count} {plural('node', count)}"
