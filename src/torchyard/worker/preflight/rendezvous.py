"""The rendezvous of an attempt's nodes: where its ranks will find each other.

Owns: the master's address, waiting for the other nodes.
Leaves: the ranks' variables to launch/variables.py, the master's port to ports.py, the checks after
all nodes have joined to preflight.py.
Always: between machines the address is never loopback; nodes that an engine has on one machine may
have loopback addresses of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torchyard.shared.connection import Connection
from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.plurals import plural
from torchyard.shared.retry_delays import retry
from torchyard.worker.preflight.ports import HeldPort
from torchyard.worker.server.control import Control
from torchyard.worker.system import networks

if TYPE_CHECKING:
    # Jobs of one rank have none, and don't import it.
    from torchyard.worker.preflight.preflight import Preflight

_POLL_S = 20.0
_RETRY_PAUSE_S = 0.05


@dataclass(frozen=True)
class Rendezvous:
    """What every node knows once all have joined.

    `address` and `port` are the master's. `hosts` holds one address per node, in node order;
    `interface` leads to them. `ports` holds the further ports that each node reserved,
    `copies_ports` that where it keeps copies of checkpoints, 0 where it keeps none.
    """

    address: str
    port: int
    hosts: tuple[str, ...]
    interface: str
    ports: tuple[tuple[int, ...], ...] = ()
    copies_ports: tuple[int, ...] = ()


def join_rendezvous(
    link: Connection,
    plan: LaunchPlan,
    node: int,
    port: HeldPort | None,
    control: Control,
    preflight: Preflight | None = None,
    own_facts: Mapping[str, Any] | None = None,
    on_port: Callable[[int], None] = lambda _: None,
) -> Rendezvous:
    """Publish this node's address, then wait until all nodes have joined and passed preflight.

    Args:
        port: the master's port on node 0, None on other nodes.
        own_facts: what else the others need to know of this node, such as further `ports`.
        on_port: called with the master's port before anything connects to it.

    Raises:
        Failure: a node did not join in time, node 0 can't be reached, or a check failed.
    """
    own_address = networks.LOOPBACK
    if not plan.single_host:
        own_address = plan.address or networks.own_address(plan.server_url)
    try:
        members = _Members([own_address], port.port if port else 0, [])
        if preflight is not None:
            members = replace(members, facts=[preflight.describe_node(own_address, port)])
        if own_facts:
            checked = members.facts[0] if members.facts else {}
            members = replace(members, facts=[{**checked, **own_facts}])
        if plan.node_count > 1:
            members = _wait_for_nodes(link, plan, node, members, control)
        on_port(members.port)
        if preflight is not None:
            preflight.check(members.facts, members.port, lambda: control.stopped)
    finally:
        if preflight is not None:
            preflight.close()
        if port is not None:
            port.stop_listening()
    address = networks.LOOPBACK if plan.single_host else members.hosts[0]
    unchecked = preflight is None and node > 0 and not plan.single_host
    if unchecked and not networks.answers(address, members.port):
        raise Failure(
            "rendezvous_failed",
            f"node {node} can't reach node 0 at {address}:{members.port}",
            "allow TCP between the nodes on ports 6105 to 6999",
        )
    ports = tuple(tuple(map(int, facts.get("ports") or ())) for facts in members.facts)
    copies_ports = tuple(int(facts.get("copies_port") or 0) for facts in members.facts)
    interface = networks.interface_of(own_address)
    return Rendezvous(address, members.port, tuple(members.hosts), interface, ports, copies_ports)


@dataclass(frozen=True)
class _Members:
    """The nodes that joined: one address per node, node 0's port, the facts of each."""

    hosts: list[str]
    port: int
    facts: list[dict[str, Any]]


def _wait_for_nodes(
    link: Connection, plan: LaunchPlan, node: int, this_node: _Members, control: Control
) -> _Members:
    body = {
        "node": node,
        "address": this_node.hosts[0],
        "port": this_node.port if node == 0 else None,
    }
    if this_node.facts:
        body["facts"] = this_node.facts[0]
    retry(lambda: link.call("POST", "/rendezvous", body), lambda: control.stopped)
    waited_s = 0.0
    while True:
        wait_s = min(_POLL_S, max(1.0, plan.join_timeout_s - waited_s))
        query = {"wait_s": f"{wait_s:g}"}
        request_sent_at = time.monotonic()
        response = retry(
            lambda: link.call("GET", "/rendezvous", query=query, timeout_s=wait_s + 10),  # noqa: B023
            lambda: control.stopped,
        )
        addresses = list(response.get("nodes") or [])
        if response.get("ready"):
            return _Members(
                [str(host) for host in addresses], int(response["port"]), response["facts"]
            )
        # Only the time that the server answered for counts: an unreachable server delays the job
        # but does not fail it.
        waited_s += min(wait_s, time.monotonic() - request_sent_at)
        if waited_s >= plan.join_timeout_s:
            raise _nodes_missing(plan, addresses)
        if control.stopped:
            raise OSError("stopped while waiting for the other nodes")
        time.sleep(_RETRY_PAUSE_S)


def _nodes_missing(plan: LaunchPlan, addresses: list[str]) -> Failure:
    missing = [str(k) for k in range(plan.node_count) if k >= len(addresses) or not addresses[k]]
    names = f"{plural('node', len(missing))} {', '.join(missing)}"
    return Failure(
        "nodes_missing",
        f"{names} did not join the job within {plan.join_timeout_s:g} s",
        "check whether those nodes started: `yard job show`",
    )
