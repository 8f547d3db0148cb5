"""Check that the nodes of a job can work together before the first rank starts.

Owns: the order of the steps: publish the facts, probe the connections, report what was found.
Leaves: facts to node_facts.py, their meaning to checks.py, sockets to links.py.
Always: all nodes have passed before the first rank of any node starts. A node that is slow, or that
ended for another reason, is never reported as a blocked port.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.preflight import checks, links, node_facts
from torchyard.worker.preflight.checks import ERROR, Finding
from torchyard.worker.preflight.links import LinkProbe, ProbeResult
from torchyard.worker.preflight.node_facts import Facts

if TYPE_CHECKING:
    from socket import socket

    from torchyard.worker.preflight.ports import HeldPort

# Time for the server to report that another node ended first, so that no port is blamed for it.
_STOP_NOTICE_S = 3.0
# Nodes with these findings can't be told apart, or can't be reached at all.
_NO_PROBE_CODES = ("no_own_address", "address_shared")
_RENDEZVOUS = "of the ranks' rendezvous"
_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Preflight:
    """The checks of one node; used by the thread that joins the rendezvous.

    Args:
        base: the environment that ranks inherit.
        folder: the node's.
        post_event: posts an event to the server.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        node: int,
        base: Mapping[str, str],
        folder: Path,
        post_event: Callable[..., None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._node = node
        self._base = base
        self._folder = folder
        self._post_event = post_event
        self._clock = clock
        self._listeners: list[socket] = []
        self._gathering_s = 0.0

    def describe_node(self, address: str, port: HeldPort | None) -> dict[str, Any]:
        """The facts that this node publishes; from now on other nodes may probe it.

        Args:
            port: of the ranks' rendezvous, on node 0.
        """
        started = time.monotonic()
        port_number, nonce = 0, ""
        if self._plan.node_count > 1:
            self._listeners = [links.open_listener(address)]
            port_number, nonce = self._listeners[0].getsockname()[1], links.new_nonce()
            if port is not None:
                self._listeners.append(port.listen())
        facts = node_facts.gather(
            self._plan, self._node, self._base, self._folder, address, (port_number, nonce)
        )
        self._gathering_s = time.monotonic() - started
        return facts.to_dict()

    def check(
        self, bodies: Sequence[Mapping[str, Any]], port: int, stopped: Callable[[], bool]
    ) -> None:
        """Find what is wrong; warnings become notices of the job.

        Args:
            bodies: the facts of each node, in node order.
            port: of the ranks' rendezvous, on node 0.

        Raises:
            Failure: the ranks could not work together; the message is the first error's.
            OSError: the job is being stopped.
        """
        started = time.monotonic()
        facts = [node_facts.from_dict(body) for body in bodies]
        layout = checks.RankLayout(self._plan.processes_per_node, self._plan.single_host)
        results = _Results(checks.run_checks(facts, layout))
        try:
            unreachable = any(finding.code in _NO_PROBE_CODES for finding in results.from_facts)
            if len(facts) > 1 and not unreachable:
                self._probe_links(facts, port, stopped, results)
        finally:
            took_s = self._gathering_s + time.monotonic() - started
            # A single node did not publish its facts at a rendezvous.
            extra = {} if len(facts) > 1 else {"facts": facts[0].to_dict()}
            took_ms = round(took_s * 1000, 2)
            self._post_event("preflight", took_ms=took_ms, **extra, **results.to_dict())
        self._report(results)

    def close(self) -> None:
        """Stop accepting probes; the rendezvous port is still held."""
        for listener in self._listeners[:1]:
            listener.close()
        self._listeners = []

    def _probe_links(
        self, facts: Sequence[Facts], port: int, stopped: Callable[[], bool], results: _Results
    ) -> None:
        probe = LinkProbe(facts, self._node, self._listeners, port, stopped, self._clock)
        try:
            results.probes = probe.probe_all()
            blocked = links.failures_by_node(results.probes)
            if blocked:
                probe.serve(_STOP_NOTICE_S)
            own_facts = facts[self._node]
            results.from_probes += [
                _blocked(own_facts, facts[to], probes) for to, probes in blocked.items()
            ]
            offset = probe.clock_offset()
            if offset is not None:
                results.clock_ahead_s = round(offset.ahead_s, 6)
                finding = checks.clock_finding(own_facts, offset.ahead_s, offset.uncertainty_s)
                results.from_probes += [finding] if finding is not None else []
            if self._is_fatal(results.from_probes):
                # The server tells the other nodes; their probes are answered meanwhile.
                return
            missing_nodes = probe.wait_for_all()
            if missing_nodes:
                probe.serve(_STOP_NOTICE_S)
                results.from_probes.append(
                    _not_ready(own_facts, [facts[node] for node in missing_nodes])
                )
        finally:
            probe.close()

    def _is_fatal(self, findings: Sequence[Finding]) -> bool:
        return self._plan.preflight != "warn" and any(
            finding.severity == ERROR for finding in findings
        )

    def _report(self, results: _Results) -> None:
        errors = [finding for finding in results.all if finding.severity == ERROR]
        fatal = errors if self._is_fatal(results.all) else []
        # All nodes see the same facts, so only one of them reports those.
        for finding in results.all if self._node == 0 else results.from_probes:
            if finding not in fatal:
                self._post_event("notice", message=f"preflight: {finding.message}; {finding.hint}")
        if fatal:
            first, *others = fatal
            also = f" (also: {', '.join(finding.message for finding in others)})" if others else ""
            raise Failure(
                first.code,
                f"{first.message}{also}",
                first.hint,
                details={"preflight": [finding.to_dict() for finding in results.all]},
            )


class _Results:
    """What one node has found so far: in the facts of all nodes, and by its own probes."""

    def __init__(self, from_facts: list[Finding]) -> None:
        self.from_facts = from_facts
        self.from_probes: list[Finding] = []
        self.probes: list[ProbeResult] = []
        self.clock_ahead_s: float | None = None

    @property
    def all(self) -> list[Finding]:
        return [*self.from_facts, *self.from_probes]

    def to_dict(self) -> dict[str, Any]:
        return {
            "findings": [finding.to_dict() for finding in self.all],
            "ways": links.results_to_json(self.probes),
            "apart_s": self.clock_ahead_s,
        }


def _blocked(own_facts: Facts, other: Facts, probes: Sequence[ProbeResult]) -> Finding:
    """The finding about another node to which connections failed."""
    first, last = _port_range()
    nodes = (own_facts.node, other.node)
    if all(result.hung_up for result in probes):
        return Finding(
            "preflight_timeout",
            ERROR,
            f"{checks.node_names([other])} closed its connections to node {own_facts.node} before "
            f"the first rank started: {probes[0].error}",
            f"see `system_logs/node-{other.node}.log` among the job's files",
            nodes,
        )
    usage = f"of the range {first} to {last}, which gloo and NCCL use"
    errors = [
        f"port {probe.port} ({_RENDEZVOUS if probe.is_rendezvous_port else usage}): {probe.error}"
        for probe in sorted(probes, key=lambda probe: not probe.is_rendezvous_port)
    ]
    return Finding(
        "ports_blocked",
        ERROR,
        f"{checks.node_names([own_facts])} can't reach {checks.node_names([other])} at "
        + "; ".join(errors),
        f"allow TCP between the nodes on ports 6105 to 6999 and {first} to {last}: see "
        "`nft list ruleset` or `iptables -L -n` on both nodes",
        nodes,
    )


def _not_ready(own_facts: Facts, missing_nodes: Sequence[Facts]) -> Finding:
    return Finding(
        "preflight_timeout",
        ERROR,
        f"{checks.node_names(missing_nodes)} did not finish the checks before the first rank "
        f"in time; node {own_facts.node} was waiting",
        "check whether that machine is overloaded; see `system_logs` among the job's files",
        (own_facts.node, *(finding.node for finding in missing_nodes)),
    )


def _port_range() -> tuple[int, int]:
    try:
        first, last = map(int, _PORTS.read_text().split())
    except (OSError, ValueError):
        return 32768, 60999
    return first, last
