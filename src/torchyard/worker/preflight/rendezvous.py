"""Where the ranks of an attempt find each other.

Owns: the master's address, the wait for the other nodes.
Leaves: telling the ranks to launch/variables.py, the master's port to ports.py, what is checked
when all have joined to preflight.py.
Always: between hosts the address is never loopback.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchyard.shared.connection import Connection
from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.retry_delays import retry
from torchyard.worker.preflight.ports import HeldPort
from torchyard.worker.preflight.preflight import Preflight
from torchyard.worker.server.control import Orders
from torchyard.worker.system import networks

_POLL_S = 20.0
_PAUSE_S = 0.05


@dataclass(frozen=True)
class Meeting:
    """`hosts` is one address a node, in node order; `interface` is the way to them.

    `ports` are those that each node offers the others besides the master's.
    """

    address: str
    port: int
    hosts: tuple[str, ...]
    interface: str
    ports: tuple[tuple[int, ...], ...] = ()


def meet(
    link: Connection,
    plan: LaunchPlan,
    node: int,
    port: HeldPort | None,
    orders: Orders,
    preflight: Preflight | None = None,
    offered: Sequence[int] = (),
) -> Meeting:
    """Wait for every node's address, and for all nodes to pass what is checked before the ranks.

    Args:
        port: node 0's, None on others.
        offered: other ports of this node that the others shall know.

    Raises:
        Failure: a node did not come in time, node 0 can't be reached, or a check says no.
    """
    own = networks.LOOPBACK
    if not plan.single_host:
        own = networks.own_address(plan.server_url)
    try:
        come = _Come([own], port.port if port else 0, [])
        if preflight is not None:
            come = replace(come, facts=[preflight.introduce(own, port)])
        if offered:
            told = come.facts[0] if come.facts else {}
            come = replace(come, facts=[{**told, "ports": list(offered)}])
        if plan.node_count > 1:
            come = _gather(link, plan, node, come, orders)
        if preflight is not None:
            preflight.check(come.facts, come.port, lambda: orders.stopped)
    finally:
        if preflight is not None:
            preflight.close()
        if port is not None:
            port.deafen()
    address = networks.LOOPBACK if plan.single_host else come.hosts[0]
    unseen = preflight is None and node > 0 and not plan.single_host
    if unseen and not networks.answers(address, come.port):
        raise Failure(
            "meeting_failed",
            f"node {node} can't reach node 0 at {address}:{come.port}",
            "open the network between the nodes, ports 6105 and up",
        )
    ports = tuple(tuple(map(int, facts.get("ports") or ())) for facts in come.facts)
    return Meeting(address, come.port, tuple(come.hosts), networks.interface_of(own), ports)


@dataclass(frozen=True)
class _Come:
    """Those who came: one address a node, node 0's port, what each told of itself."""

    hosts: list[str]
    port: int
    facts: list[dict[str, Any]]


def _gather(link: Connection, plan: LaunchPlan, node: int, own: _Come, orders: Orders) -> _Come:
    mine = {"node": node, "address": own.hosts[0], "port": own.port if node == 0 else None}
    if own.facts:
        mine["facts"] = own.facts[0]
    retry(lambda: link.call("POST", "/meeting", mine), lambda: orders.stopped)
    waited_s = 0.0
    while True:
        wait_s = min(_POLL_S, max(1.0, plan.meeting_timeout_s - waited_s))
        query = {"wait_s": f"{wait_s:g}"}
        asked_at = time.monotonic()
        answer = retry(
            lambda: link.call("GET", "/meeting", query=query, timeout_s=wait_s + 10),  # noqa: B023
            lambda: orders.stopped,
        )
        nodes = list(answer.get("nodes") or [])
        if answer.get("ready"):
            return _Come([str(host) for host in nodes], int(answer["port"]), answer["facts"])
        # Only time the server answered for counts: one that is away delays, and fails nobody.
        waited_s += min(wait_s, time.monotonic() - asked_at)
        if waited_s >= plan.meeting_timeout_s:
            raise _not_all_came(plan, nodes)
        if orders.stopped:
            raise OSError("stopped while waiting for the other nodes")
        time.sleep(_PAUSE_S)


def _not_all_came(plan: LaunchPlan, nodes: list[str]) -> Failure:
    missing = [str(k) for k in range(plan.node_count) if k >= len(nodes) or not nodes[k]]
    who = f"node {missing[0]}" if len(missing) == 1 else f"nodes {', '.join(missing)}"
    return Failure(
        "meeting_timeout",
        f"{who} did not come to the meeting within {plan.meeting_timeout_s:g} s",
        "see whether those nodes started: `yard job show`",
    )
