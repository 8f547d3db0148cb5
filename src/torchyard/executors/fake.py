"""An executor that starts nothing, for tests of its callers.

Owns: scripted nodes.
Leaves: real processes to the other engines.
Always: keeps the contracts of `Executor`, `Engine` and `Probing`; time passes only when the test
says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from torchyard.executors.executor import (
    EngineCluster,
    EngineNode,
    EngineUnreachable,
    Handle,
    NodeState,
    Status,
)
from torchyard.shared.plan import LaunchPlan

NAME = "fake"


class FakeExecutor:
    """Attempts run until the test ends them with `finish` or `lose`, or `stop` does.

    Attributes:
        launches: plans in the order of their first launch.
        stops: (attempt id, grace in seconds) of each stop, in order.
        launch_error: raised by the next launch, once.
        ends_when_stopped: whether a stop ends the nodes at once.
    """

    def __init__(self, ends_when_stopped: bool = True) -> None:
        self.launches: list[LaunchPlan] = []
        self.stops: list[tuple[str, float]] = []
        self.launch_error: Exception | None = None
        self.ends_when_stopped = ends_when_stopped
        self._nodes: dict[str, list[NodeState]] = {}

    def launch(self, plan: LaunchPlan) -> Handle:
        error, self.launch_error = self.launch_error, None
        if error is not None:
            raise error
        if plan.attempt_id not in self._nodes:
            self.launches.append(plan)
            self._nodes[plan.attempt_id] = ["running"] * plan.node_count
        return Handle(NAME, {"attempt_id": plan.attempt_id, "nodes": plan.node_count})

    def recover(self, plan: LaunchPlan) -> Handle:
        return Handle(NAME, {"attempt_id": plan.attempt_id, "nodes": plan.node_count})

    def status(self, handle: Handle) -> Status:
        lost: list[NodeState] = ["lost"] * int(handle.body["nodes"])
        return Status(tuple(self._nodes.get(handle.body["attempt_id"], lost)))

    def stop(self, handle: Handle, grace_s: float) -> None:
        attempt_id = str(handle.body["attempt_id"])
        self.stops.append((attempt_id, grace_s))
        if self.ends_when_stopped or grace_s <= 0:
            nodes = self._nodes.get(attempt_id, [])
            for number, node in enumerate(nodes):
                if node == "running":
                    nodes[number] = "exited"

    def finish(self, attempt_id: str, node: int | None = None) -> None:
        """End one node, or all; what it reported before is up to the test."""
        self._end(attempt_id, node, "exited")

    def lose(self, attempt_id: str, node: int | None = None) -> None:
        """End one node, or all, without a report."""
        self._end(attempt_id, node, "lost")

    def forget(self) -> None:
        """Lose all at once, as a machine that was switched off does."""
        self._nodes.clear()

    def _end(self, attempt_id: str, node: int | None, state: NodeState) -> None:
        nodes = self._nodes[attempt_id]
        for number in range(len(nodes)) if node is None else [node]:
            nodes[number] = state


class FakeEngine(FakeExecutor):
    """Attempts wait for machines until the test gives them some.

    Attributes:
        reason: what they wait for.
        lost_because: by node, of every attempt.
        unanswered: by node, what a probe finds; `probes` are the nodes that were silent, and those
            that had begun.
        unreachable: what every call raises, while it is set.
        cluster: what it says of itself.
        released: the attempts that were let go.
        is_closed: whether the server has closed it.
    """

    def __init__(self, engine: str, machines: int = 2, most_nodes: int = 0) -> None:
        super().__init__()
        self.engine = engine
        self.reason = ""
        self.lost_because: dict[int, str] = {}
        self.unanswered: dict[int, str] = {}
        self.probes: list[tuple[list[int], set[int]]] = []
        self.unreachable: EngineUnreachable | None = None
        nodes = tuple(EngineNode(f"machine-{k}", f"10.0.0.{k + 1}") for k in range(machines))
        self.cluster = EngineCluster(engine, "1.0", nodes, most_nodes)
        self.released: list[str] = []
        self.is_closed = False

    def launch(self, plan: LaunchPlan) -> Handle:
        self._answer()
        is_new = plan.attempt_id not in self._nodes
        handle = super().launch(plan)
        if is_new:
            self._nodes[plan.attempt_id] = ["pending"] * plan.node_count
        return Handle(self.engine, handle.body)

    def status(self, handle: Handle) -> Status:
        self._answer()
        nodes = super().status(handle).nodes
        return Status(nodes, reason=self.reason, lost_because=self.lost_because)

    def stop(self, handle: Handle, grace_s: float) -> None:
        self._answer()
        super().stop(handle, grace_s)
        nodes = self._nodes.get(str(handle.body["attempt_id"]), [])
        nodes[:] = ["lost" if node == "pending" else node for node in nodes]

    def probe(self, handle: Handle, silent: Sequence[int], begun: Set[int]) -> Mapping[int, str]:
        self._answer()
        self.probes.append((list(silent), set(begun)))
        return {node: self.unanswered[node] for node in silent if node in self.unanswered}

    def describe(self, settings: Mapping[str, Any]) -> EngineCluster:
        self._answer()
        return self.cluster

    def release(self, handle: Handle) -> None:
        self._answer()
        self.released.append(str(handle.body["attempt_id"]))

    def close(self) -> None:
        self.is_closed = True

    def give_machines(self, attempt_id: str, *nodes: int) -> None:
        """To these nodes of an attempt, or to all."""
        for node in nodes or range(len(self._nodes[attempt_id])):
            self._nodes[attempt_id][node] = "running"

    def _answer(self) -> None:
        if self.unreachable is not None:
            raise self.unreachable
