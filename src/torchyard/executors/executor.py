"""The interface of executors, and the types that pass through it.

Owns: what every engine must do.
Leaves: starting processes to the engines, jobs and nodes' slots to jobs/ and compute/.
Always: an executor knows plans, never jobs; a handle read back equals the handle written, and is
all that a restarted server needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from torchyard.shared.node_records import State as State
from torchyard.shared.plan import LaunchPlan

NodeState = Literal["pending", "running", "ending", "exited", "lost"]
_WORST_FIRST: tuple[NodeState, ...] = ("lost", "ending", "running", "pending")


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
class EngineCause:
    """Why an engine takes nodes back. `code` is that of a failure: preempted, time_limit,
    node_lost, node_unusable, out_of_memory, canceled_in_slurm.
    """

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Status:
    """One state per node, in node order.

    A lost node ended without a report. The worker of a node that is ending died, and its recovery
    worker stops its ranks and uploads what it left. A pending node has no worker yet: its engine
    waits for a machine, and `reason` says for what, in our words. Nodes that are not `seen` are on
    another machine: they are running until they report otherwise. `lost_because` says by node why
    the engine lost it, where it knows, after the machine's name: "gpu-3: the machine does not
    respond any more". `cause` says why the engine ends, or has ended, the nodes; None while it lets
    them run. All of it was so `age_s` ago;
    an engine that ends them and has not said why yet is not `settled`.
    """

    nodes: tuple[NodeState, ...]
    seen: bool = True
    reason: str = ""
    lost_because: Mapping[int, str] = field(default_factory=dict)
    cause: EngineCause | None = None
    age_s: float = 0.0
    settled: bool = True

    @property
    def state(self) -> NodeState:
        """Lost as soon as one node is lost, although others may still run; see `over`."""
        for state in _WORST_FIRST:
            if state in self.nodes:
                return state
        return "exited"

    @property
    def over(self) -> bool:
        """Whether every node has ended."""
        return not {"pending", "running", "ending"} & set(self.nodes)


@dataclass(frozen=True)
class EngineNode:
    """One machine of an engine's cluster. `state` is in our words: idle, running, draining, down,
    joining; `users` are the jobs, by name, that run there; `reason` says why it is down.
    """

    name: str
    address: str = ""
    state: str = "idle"
    cpus: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    gpu_kind: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    users: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class EngineCluster:
    """What an engine says of itself. `most_nodes` is how many it could ever have, 0 where it does
    not know; `version` is the engine's, `python` that of its nodes, empty where it does not matter.
    """

    engine: str
    version: str
    nodes: tuple[EngineNode, ...]
    most_nodes: int = 0
    notices: tuple[str, ...] = ()
    python: str = ""


class EngineUnreachable(Exception):
    """The engine does not answer now: the next round asks again.

    Attributes:
        hint: the next step, for people.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class EngineRefused(Exception):
    """The engine refuses an attempt for good: the job fails with this message.

    Attributes:
        hint: the next step, for people.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


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
            EngineUnreachable: call it again later; whether it was launched is not known.
            EngineRefused: it can't ever be launched.
        """
        ...

    def recover(self, plan: LaunchPlan) -> Handle:
        """Start a recovery worker on every lost node that still has its worker's files.

        It ends the remaining processes, uploads what is left and reports the worker's death; the
        script does not run again. On nodes without the server's disk the supervisor beside the
        worker has done it already, and this changes nothing.
        """
        ...

    def status(self, handle: Handle) -> Status:
        """The states of the nodes, by the handle alone: also after a restart of the server.

        Raises:
            EngineUnreachable: ask again later.
        """
        ...

    def stop(self, handle: Handle, grace_s: float) -> None:
        """Ask the workers to end, and kill those that still run `grace_s` later; returns at once.

        A worker that is asked to end still uploads outputs and logs; for a killed one its recovery
        worker does. Safe to call again, and after the end.
        """
        ...


class Engine(Executor, Protocol):
    """An executor whose nodes are machines of a cluster with an engine of its own.

    The scheduler's one thread calls `launch`, `status`, `stop` and `release`: each answers within
    a second, from what is known already, or raises EngineUnreachable. No call hangs, whatever the
    cluster does.
    """

    def describe(self, settings: Mapping[str, Any]) -> EngineCluster:
        """The cluster as it is now: values that JSON has, and none of its or its jobs' secrets.

        It may wait a minute for an engine that is being opened.

        Args:
            settings: the cluster's, as its document's `torchyard:` has them, checked.

        Raises:
            EngineUnreachable: with what is wrong, and the next step.
            EngineRefused: it can't be used with these settings.
        """
        ...

    def release(self, handle: Handle) -> None:
        """Let go of what the engine still holds for an attempt that is over.

        Harmless where it holds nothing: after another release, also one by another server.

        Raises:
            EngineUnreachable: the next round calls again.
        """
        ...

    def close(self) -> None:
        """End what serves this server: threads, processes, descriptors, temporary files. Jobs go
        on, also those that were asked to stop, whose grace the next server watches.

        What is being opened meanwhile ends once it is; a call that comes later opens nothing any
        more. Safe to call again.
        """
        ...


@runtime_checkable
class Probing(Protocol):
    """An engine whose `status` learns late that a machine has died; the others have no `probe`."""

    def probe(self, handle: Handle, silent: Sequence[int], begun: Set[int]) -> Mapping[int, str]:
        """Those of the silent nodes whose machines don't answer, as `Status.lost_because` says it;
        none of an attempt that is over.

        Args:
            begun: the nodes whose workers have run: without processes of theirs they have ended.

        Raises:
            EngineUnreachable: ask again later.
        """
        ...
