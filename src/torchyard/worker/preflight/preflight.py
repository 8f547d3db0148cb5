"""What would keep the ranks from meeting is told by name before the first of them starts.

Owns: the order of it: facts to the meeting, knocking at each other's ports, the verdict.
Leaves: facts to node_facts.py, their meaning to checks.py, sockets to links.py.
Always: all nodes have passed before the first rank of any starts. A node that is merely slow, or
another one that ended for its own reason, is never called a blocked port.
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
from torchyard.worker.preflight.links import Round, Way
from torchyard.worker.preflight.node_facts import Facts

if TYPE_CHECKING:
    from socket import socket

    from torchyard.worker.preflight.ports import HeldPort

# In which the server tells that another node ended first, so that no port is blamed for it.
_NEWS_S = 3.0
# Nodes with these can't be told apart, or not be reached at all.
_NOWHERE = ("no_own_address", "address_shared")
_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Preflight:
    """Of one node, used by the thread that meets the others.

    Args:
        base: the environment that ranks inherit.
        folder: of the node.
        tell: posts an event.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        node: int,
        base: Mapping[str, str],
        folder: Path,
        tell: Callable[..., None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._node = node
        self._base = base
        self._folder = folder
        self._tell = tell
        self._clock = clock
        self._doors: list[socket] = []
        self._took_s = 0.0
        self._is_without_gpu = False

    def introduce(self, address: str, port: HeldPort | None) -> dict[str, Any]:
        """What this node tells the meeting; from now on others may knock.

        Args:
            port: where ranks will meet, at node 0.
        """
        began = time.monotonic()
        door, word = 0, ""
        if self._plan.node_count > 1:
            self._doors = [links.open_door(address)]
            door, word = self._doors[0].getsockname()[1], links.new_word()
            if port is not None:
                self._doors.append(port.listen())
        facts = node_facts.gather(
            self._plan, self._node, self._base, self._folder, address, (door, word)
        )
        self._took_s = time.monotonic() - began
        return facts.to_dict()

    def check(
        self, told: Sequence[Mapping[str, Any]], port: int, stopped: Callable[[], bool]
    ) -> None:
        """Find what is wrong; warnings become notices of the job.

        Args:
            told: by each node, in their order.
            port: where ranks will meet, on node 0.

        Raises:
            Failure: the ranks could not work together, in the words of the first error.
            OSError: the job is being stopped.
        """
        began = time.monotonic()
        facts = [node_facts.read(one) for one in told]
        asked = checks.Asked(self._plan.processes_per_node, self._plan.single_host)
        found = _Record(checks.look(facts, asked))
        self._is_without_gpu = not any(one.devices or one.backend for one in facts)
        try:
            if len(facts) > 1 and not any(one.code in _NOWHERE for one in found.shared):
                self._meet(facts, port, stopped, found)
        finally:
            took_s = self._took_s + time.monotonic() - began
            # A node that has no others told nobody of itself yet.
            alone = {} if len(facts) > 1 else {"facts": facts[0].to_dict()}
            took_ms = round(took_s * 1000, 2)
            self._tell("preflight", took_ms=took_ms, **alone, **found.to_dict())
        self._judge(found)

    def glance(self, command: str, work: Path) -> None:
        """Hint at a script that wants NCCL where there is no GPU; after `check`."""
        if self._node > 0 or not self._is_without_gpu:
            return
        from torchyard.worker.preflight import script_check

        finding = script_check.at_nccl(command, work)
        if finding is not None:
            self._tell("notice", message=f"preflight: {finding.message}; {finding.hint}")

    def close(self) -> None:
        """Nobody may knock any more; the port where ranks meet is still held."""
        for door in self._doors[:1]:
            door.close()
        self._doors = []

    def _meet(
        self, facts: Sequence[Facts], port: int, stopped: Callable[[], bool], found: _Record
    ) -> None:
        around = Round(facts, self._node, self._doors, port, stopped, self._clock)
        try:
            found.ways = around.knock()
            shut = links.blocked(found.ways)
            if shut:
                around.serve(_NEWS_S)
            own = facts[self._node]
            found.own += [_shut(own, facts[to], ways) for to, ways in shut.items()]
            apart = around.apart()
            if apart is not None:
                found.apart_s = round(apart.seconds, 6)
                clock = checks.clock_finding(own, apart.seconds, apart.sure_to_s)
                found.own += [clock] if clock is not None else []
            if self._ends_here(found.own):
                # The others are told by the server; what they still ask is answered meanwhile.
                return
            missing = around.together()
            if missing:
                around.serve(_NEWS_S)
                found.own.append(_not_through(own, [facts[node] for node in missing]))
        finally:
            around.close()

    def _ends_here(self, findings: Sequence[Finding]) -> bool:
        return self._plan.preflight != "warn" and any(one.severity == ERROR for one in findings)

    def _judge(self, found: _Record) -> None:
        errors = [one for one in found.all if one.severity == ERROR]
        fatal = errors if self._ends_here(found.all) else []
        # All nodes see the same facts; one of them tells.
        for one in found.all if self._node == 0 else found.own:
            if one not in fatal:
                self._tell("notice", message=f"preflight: {one.message}; {one.hint}")
        if fatal:
            first, *others = fatal
            also = f" (also: {', '.join(one.message for one in others)})" if others else ""
            raise Failure(
                first.code,
                f"{first.message}{also}",
                first.hint,
                details={"preflight": [one.to_dict() for one in found.all]},
            )


class _Record:
    """What one node found out, as far as it came: in the facts of all, and by itself."""

    def __init__(self, shared: list[Finding]) -> None:
        self.shared = shared
        self.own: list[Finding] = []
        self.ways: list[Way] = []
        self.apart_s: float | None = None

    @property
    def all(self) -> list[Finding]:
        return [*self.shared, *self.own]

    def to_dict(self) -> dict[str, Any]:
        return {
            "findings": [one.to_dict() for one in self.all],
            "ways": links.told(self.ways),
            "apart_s": self.apart_s,
        }


def _shut(own: Facts, other: Facts, ways: Sequence[Way]) -> Finding:
    """Of one other node, by every way to it that failed."""
    first, last = _port_range()
    nodes = (own.node, other.node)
    if all(way.left for way in ways):
        return Finding(
            "preflight_timeout",
            ERROR,
            f"node {other.node} ({other.address}) hung up on node {own.node} before the first rank "
            f"started: {ways[0].error}",
            f"see `system_logs/node-{other.node}.log` among the job's files",
            nodes,
        )
    chosen = f"one of {first} to {last} as gloo and NCCL use"
    said = [
        f"port {way.port}, {'where the ranks meet' if way.meets else chosen}: {way.error}"
        for way in sorted(ways, key=lambda way: not way.meets)
    ]
    return Finding(
        "ports_blocked",
        ERROR,
        f"node {own.node} ({own.address}) can't reach node {other.node} ({other.address}) at "
        + "; ".join(said),
        f"let TCP through between the nodes, from and to the ports 6105 to 6999 and {first} to "
        f"{last}: see `nft list ruleset` or `iptables -L -n` on both",
        nodes,
    )


def _not_through(own: Facts, missing: Sequence[Facts]) -> Finding:
    return Finding(
        "preflight_timeout",
        ERROR,
        f"{checks.named(missing)} did not get through the checks before the first rank, "
        f"which node {own.node} waited for",
        "see whether that machine is overloaded, and `system_logs` among the job's files",
        (own.node, *(one.node for one in missing)),
    )


def _port_range() -> tuple[int, int]:
    try:
        first, last = map(int, _PORTS.read_text().split())
    except (OSError, ValueError):
        return 32768, 60999
    return first, last
