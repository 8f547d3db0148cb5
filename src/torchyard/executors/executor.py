"""The interface of executors, and the types that pass through it.

Owns: what every engine must do.
Leaves: starting processes to the engines, jobs and nodes' slots to jobs/ and compute/.
Always: an executor knows plans, never jobs; a handle read back equals the handle written, and is
all that a restarted server needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torchyard.shared.node_records import State as State
from torchyard.shared.plan import LaunchPlan

_WORST_FIRST: tuple[State, ...] = ("lost", "ending", "running")


@dataclass(frozen=True)
class Handle:
    """An executor's receipt; `body` is JSON that only the executor itself understands."""

    executor: str
    body: Mapping[str, Any]

    @property
    def machine(self) -> str:
        """Where its processes are, as base/machine.py names it; empty when that does not matter."""
        return str(self.body.get("machine", ""))

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"executor": self.executor, "body": dict(self.body)}

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Handle:
        """Read what `to_json` wrote."""
        return cls(str(written["executor"]), dict(written["body"]))


@dataclass(frozen=True)
class Status:
    """One state per node, in node order.

    A lost node ended without a report. The worker of a node that is ending died, and its recovery
    worker stops its ranks and uploads what it left. Nodes that are not `seen` are on another
    machine: they are running until they report otherwise.
    """

    nodes: tuple[State, ...]
    seen: bool = True

    @property
    def state(self) -> State:
        """Lost as soon as one node is lost, although others may still run; see `over`."""
        for state in _WORST_FIRST:
            if state in self.nodes:
                return state
        return "exited"

    @property
    def over(self) -> bool:
        """Whether every node has ended."""
        return not {"running", "ending"} & set(self.nodes)


@dataclass(frozen=True)
class Capacity:
    """The engine's `nodes` in all, and the resources of one node."""

    nodes: int
    cpus: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


class DevicesTaken(Exception):
    """Others hold devices that an attempt needs.

    Attributes:
        begun: whether some of its nodes run already; then the launch must be repeated.
    """

    def __init__(self, message: str, begun: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.begun = begun


class Executor(Protocol):
    """Start processes somewhere and report on them. Knows plans, never jobs."""

    def launch(self, plan: LaunchPlan) -> Handle:
        """Start a worker on every node; launching the same attempt twice starts it once.

        Raises:
            DevicesTaken: too few devices are free; nothing was started, unless `begun` is set.
        """
        ...

    def recover(self, plan: LaunchPlan) -> Handle:
        """Start a recovery worker on every lost node that still has its worker's files.

        It ends the remaining processes, uploads what is left and reports the worker's death; the
        script does not run again.
        """
        ...

    def status(self, handle: Handle) -> Status:
        """The states of the nodes, by the handle alone: also after a restart of the server."""
        ...

    def stop(self, handle: Handle, grace_s: float) -> None:
        """Ask the workers to end, and kill those that still run `grace_s` later; returns at once.

        A worker that is asked to end still uploads outputs and logs; for a killed one its recovery
        worker does. Safe to call again, and after the end.
        """
        ...

    def capacity(self) -> Capacity:
        """The capacity at this moment."""
        ...

    def scale(self, node_count: int) -> None:
        """Request that many nodes in all; `capacity` says when they exist."""
        ...
