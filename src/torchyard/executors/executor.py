"""What an engine must do, whichever it is.

Owns: the interface of executors and the types that pass through it.
Leaves: starting processes to the engines, jobs and nodes' slots to jobs/ and compute/.
Always: an executor knows plans, never jobs; a handle read back equals the handle written, and is
all that a server started anew needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torchyard.shared.plan import LaunchPlan

State = Literal["running", "ending", "exited", "lost"]
_WORST_FIRST: tuple[State, ...] = ("lost", "ending", "running")


@dataclass(frozen=True)
class Handle:
    """An executor's receipt; `body` is JSON that only the executor itself understands."""

    executor: str
    body: Mapping[str, Any]

    @property
    def machine(self) -> str:
        """Where its processes are, as base/machine.py calls it; empty when that makes no odds."""
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
    """One state a node, in node order. A node that is lost ended without saying how; the worker
    of one that is ending died, and what it left is being ended and delivered. Nodes that are not
    `seen` are on another machine: they run as long as they don't say otherwise.
    """

    nodes: tuple[State, ...]
    seen: bool = True

    @property
    def state(self) -> State:
        """Lost as soon as one node is lost, though others may still run; see `over`."""
        for state in _WORST_FIRST:
            if state in self.nodes:
                return state
        return "exited"

    @property
    def over(self) -> bool:
        """Whether no node runs any more."""
        return not {"running", "ending"} & set(self.nodes)


@dataclass(frozen=True)
class Capacity:
    """What the engine has: `nodes` in all, and what one node has."""

    nodes: int
    cpus: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


class DevicesTaken(Exception):
    """Somebody else has the devices that an attempt was to have.

    Attributes:
        begun: whether some of its nodes run already; then the launch is to be tried again.
    """

    def __init__(self, message: str, begun: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.begun = begun


class Executor(Protocol):
    """Start processes somewhere and answer for them. Knows plans, never jobs."""

    def launch(self, plan: LaunchPlan) -> Handle:
        """Start a worker on every node; the same attempt twice starts once.

        Raises:
            DevicesTaken: it would have to share a device; nothing was started, unless it says so.
        """
        ...

    def inherit(self, plan: LaunchPlan) -> Handle:
        """Start an heir on every node that is lost and still has what its worker left.

        It ends what lives on there, delivers what is owed and tells of the death; the script does
        not run again.
        """
        ...

    def status(self, handle: Handle) -> Status:
        """How the nodes are, by the handle alone: also after the server was started anew."""
        ...

    def stop(self, handle: Handle, grace_s: float) -> None:
        """Tell the workers to end, and kill those that still run `grace_s` later; returns at once.

        A worker that is told to end still delivers outputs and logs; for a killed one its heir
        does. Safe to call again, and on what has ended.
        """
        ...

    def capacity(self) -> Capacity:
        """What there is now."""
        ...

    def scale(self, node_count: int) -> None:
        """Ask for that many nodes in all; `capacity` tells when they are there."""
        ...
