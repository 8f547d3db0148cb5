"""An executor that starts nothing, for tests of its callers.

Owns: scripted nodes.
Leaves: real processes to the other engines.
Always: keeps the contract of `Executor`; time passes only when the test says so.
"""

from __future__ import annotations

from torchyard.executors.executor import Capacity, Handle, State, Status
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

    def __init__(self, nodes: int = 0, ends_when_stopped: bool = True) -> None:
        self.launches: list[LaunchPlan] = []
        self.stops: list[tuple[str, float]] = []
        self.launch_error: Exception | None = None
        self.ends_when_stopped = ends_when_stopped
        self._nodes: dict[str, list[State]] = {}
        self._capacity = Capacity(nodes, cpus=2)

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
        lost: list[State] = ["lost"] * int(handle.body["nodes"])
        return Status(tuple(self._nodes.get(handle.body["attempt_id"], lost)))

    def stop(self, handle: Handle, grace_s: float) -> None:
        attempt_id = str(handle.body["attempt_id"])
        self.stops.append((attempt_id, grace_s))
        if self.ends_when_stopped or grace_s <= 0:
            nodes = self._nodes.get(attempt_id, [])
            for number, node in enumerate(nodes):
                if node == "running":
                    nodes[number] = "exited"

    def capacity(self) -> Capacity:
        return self._capacity

    def scale(self, node_count: int) -> None:
        self._capacity = Capacity(node_count, self._capacity.cpus)

    def finish(self, attempt_id: str, node: int | None = None) -> None:
        """End one node, or all; what it reported before is up to the test."""
        self._end(attempt_id, node, "exited")

    def lose(self, attempt_id: str, node: int | None = None) -> None:
        """End one node, or all, without a report."""
        self._end(attempt_id, node, "lost")

    def forget(self) -> None:
        """Lose all at once, as a machine that was switched off does."""
        self._nodes.clear()

    def _end(self, attempt_id: str, node: int | None, state: State) -> None:
        nodes = self._nodes[attempt_id]
        for number in range(len(nodes)) if node is None else [node]:
            nodes[number] = state
