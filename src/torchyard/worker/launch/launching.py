"""What a kind of distribution needs before the nodes meet, and until the ranks start.

Owns: the ports that a node offers the others: its tasks' under TensorFlow, its errands' under MPI.
Leaves: telling them to preflight/rendezvous.py, using them to variables.py and mpi.py.
Always: a port is held from before the meeting until the ranks start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchyard.shared.plan import LaunchPlan
from torchyard.worker.preflight import ports

if TYPE_CHECKING:
    from torchyard.worker.launch.mpi_remote_start import Errands
    from torchyard.worker.preflight.ports import HeldPort

MPI, TENSORFLOW = "mpi", "tensorflow"


@dataclass(frozen=True)
class Launching:
    """`errands` are taken by every node but the first, under MPI."""

    held: Sequence[HeldPort] = ()
    errands: Errands | None = None

    @property
    def ports(self) -> list[int]:
        return [self.errands.port] if self.errands else [held.port for held in self.held]

    def release(self) -> None:
        """Free the ports for the ranks; other torchyard jobs still keep off."""
        for held in self.held:
            held.release()

    def close(self) -> None:
        for held in self.held:
            held.close()


def begin(plan: LaunchPlan, node: int, wake: Callable[[], None]) -> Launching:
    """
    Args:
        wake: called when an errand came.

    Raises:
        Failure: there are not ports enough.
    """
    if plan.distribution == TENSORFLOW:
        held: list[HeldPort] = []
        for _ in range(plan.processes_per_node):
            first = held[-1].port + 1 if held else ports.FIRST_PORT
            held.append(ports.hold_port(first))
        return Launching(held)
    if plan.distribution == MPI and node > 0:
        from torchyard.worker.launch.mpi_remote_start import (
            Errands,  # Other kinds need no such thing.
        )

        return Launching(errands=Errands(plan.report_token, plan.single_host, wake))
    return Launching()
