"""Nodes, bridges, servers and machines that are killed at random."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ray.ray_cluster import RayCluster, wait_until
from ray.stub_nodes import Nodes, patiently
from torchyard.executors.executor import Handle

pytestmark = [pytest.mark.ray]
_ROUNDS = int(os.environ.get("TORCHYARD_TEST_KILLS", "4"))
# An attempt that never ends is a fault, however slow the machine is.
_STALLED_S = 600.0


class Storm:
    """Attempts that are launched again when a node of theirs was lost, as a retry policy does."""

    def __init__(self, nodes: Nodes, seed: int) -> None:
        self._nodes = nodes
        self._chance = random.Random(seed)
        self._count = 0
        self.handles: dict[str, Handle] = {}
        self.completed = 0

    def launch(self) -> None:
        self._count += 1
        attempt = f"k{self._count}"
        self.handles[attempt] = self._nodes.launch(self._nodes.plan(attempt, 2))

    def kill(self) -> str:
        kinds: list[Callable[[], None]] = [self._bridge, self._server, self._worker, self._machine]
        kind = self._chance.choice(kinds)
        kind()
        return kind.__name__

    def _bridge(self) -> None:
        for cluster in self._nodes.engine._clusters.values():
            if cluster.bridge.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(cluster.bridge.pid, signal.SIGKILL)

    def _server(self) -> None:
        self._bridge()
        self._nodes.engine.close()
        self._nodes.engine = self._nodes.new_engine()

    def _worker(self) -> None:
        attempt = self._chance.choice(sorted(self.handles))
        for line in self._nodes.lines(attempt, self._chance.randrange(2))[:1]:
            with suppress(ProcessLookupError):
                os.kill(int(line.split()[1]), signal.SIGKILL)

    def _machine(self) -> None:
        number = self._chance.choice(sorted(self._nodes.cluster.nodes))
        self._nodes.cluster.kill_machine(number)
        self._nodes.cluster.start_node(number)

    def settle(self) -> None:
        """Finish every attempt; those that lost a node are launched again."""
        for attempt, handle in list(self.handles.items()):
            status = patiently(lambda handle=handle: self._nodes.engine.status(handle))  # type: ignore[misc]
            if "lost" in status.nodes:
                self._end(attempt, handle)
                self.launch()
            else:
                for node in (0, 1):
                    self._nodes.finish(attempt, node)
                if status.nodes == ("exited", "exited"):
                    self._end(attempt, handle)
                    self.completed += 1

    def _end(self, attempt: str, handle: Handle) -> None:
        patiently(lambda: self._nodes.engine.stop(handle, 0))
        wait_until(lambda: self._nodes.status(handle).over, 30, "the end of the attempt")
        patiently(lambda: self._nodes.engine.release(handle))
        self._nodes.launches.remove(attempt)
        del self.handles[attempt]


@pytest.mark.timeout(_STALLED_S + 120 * _ROUNDS)
def test_every_attempt_ends_and_nothing_is_left_after_random_kills(
    ray_home: Path, tmp_path: Path, cluster: RayCluster
) -> None:
    nodes = Nodes(ray_home, tmp_path, cluster)
    storm = Storm(nodes, seed=18)
    kills = []
    for _ in range(_ROUNDS):
        storm.launch()
        handle = list(storm.handles.values())[-1]
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline and nodes.status(handle).nodes[0] == "pending":
            time.sleep(0.1)
        kills.append(storm.kill())
        storm.settle()
    deadline = time.monotonic() + _STALLED_S
    while storm.handles:
        assert time.monotonic() < deadline, storm.handles
        storm.settle()
        time.sleep(0.1)
    print(f"{len(kills)} kills: {kills}; {storm.completed} attempts completed")
    assert storm.completed == _ROUNDS
    nodes.engine.close()
    assert cluster.list_remaining() == []
    wait_until(lambda: not cluster.job_processes(str(tmp_path)), 10, "the end of the nodes")
    for file in nodes.folder.glob("k*.[01]"):
        assert sum(line.startswith("started") for line in file.read_text().splitlines()) == 1, file
