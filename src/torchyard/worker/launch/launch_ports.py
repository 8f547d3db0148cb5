"""Ports that a type of distribution needs besides the master's, reserved until the ranks start.

Owns: the ports of this node that other nodes connect to: one per task under TensorFlow, the one for
remote starts under MPI, the one for copies of checkpoints.
Leaves: publishing them to preflight/rendezvous.py, using them to variables.py, mpi.py and
node/peer_copies.py.
Always: a port is held from before the rendezvous until the ranks start; a job that finds no port
for copies goes on without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.preflight import ports

if TYPE_CHECKING:
    from torchyard.worker.launch.mpi_remote_start import RemoteStart
    from torchyard.worker.preflight.ports import HeldPort

MPI, TENSORFLOW = "mpi", "tensorflow"
# Above those that ranks and their launchers get.
FIRST_COPIES_PORT = 6800


@dataclass(frozen=True)
class LaunchPorts:
    """`remote_start` exists under MPI, on every node except node 0; `copies` where nodes keep
    copies of each other's checkpoints. That one listens already; who accepts there closes it.
    """

    held: Sequence[HeldPort] = ()
    remote_start: RemoteStart | None = None
    copies: HeldPort | None = None

    @property
    def ports(self) -> list[int]:
        return [self.remote_start.port] if self.remote_start else [port.port for port in self.held]

    @property
    def facts(self) -> dict[str, Any]:
        """What the other nodes need to know."""
        facts: dict[str, Any] = {"ports": self.ports} if self.ports else {}
        return {**facts, "copies_port": self.copies.port} if self.copies else facts

    def release(self) -> None:
        """Free the ports for the ranks, but keep the locks against other torchyard jobs."""
        for port in self.held:
            port.release()

    def close(self) -> None:
        for port in self.held:
            port.close()


def reserve_ports(plan: LaunchPlan, node: int, wake: Callable[[], None]) -> LaunchPorts:
    """Reserve the ports that the plan's distribution needs.

    Args:
        wake: called when another node requests a remote start.

    Raises:
        Failure: not enough ports are free.
    """
    reserved = _of_distribution(plan, node, wake)
    if not (plan.peer_copies and plan.node_folder and plan.node_count > 1):
        return reserved
    try:
        copies = ports.hold_port(FIRST_COPIES_PORT)
    except Failure:
        return reserved
    copies.listen()
    return replace(reserved, copies=copies)


def _of_distribution(plan: LaunchPlan, node: int, wake: Callable[[], None]) -> LaunchPorts:
    if plan.distribution == TENSORFLOW:
        held_ports: list[HeldPort] = []
        for _ in range(plan.processes_per_node):
            first = held_ports[-1].port + 1 if held_ports else ports.FIRST_PORT
            held_ports.append(ports.hold_port(first))
        return LaunchPorts(held_ports)
    if plan.distribution == MPI and node > 0:
        from torchyard.worker.launch.mpi_remote_start import (
            RemoteStart,  # Only for MPI jobs.
        )

        return LaunchPorts(remote_start=RemoteStart(plan.report_token, plan.single_host, wake))
    return LaunchPorts()
