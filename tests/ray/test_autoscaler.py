"""Ray's autoscaler starts and ends machines for groups that wait."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ray.ray_cluster import RayCluster, wait_until
from ray.stub_nodes import Nodes, patiently
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.compute import actions
from torchyard.compute.machine_counts import MachineCounts
from torchyard.executors.executor import EngineCluster, Handle
from torchyard.executors.ray.ray_environment import RayEnvironment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
_MOST = 4
_JOBS = int(os.environ.get("TORCHYARD_TEST_LOAD", "200"))
_AT_ONCE = 8
# Small jobs are the most, as where people work; each node is a process of Ray to start.
_WEIGHTS = (8, 4, 2, 1)
# Of a busy machine; an attempt that never ends is a fault, however long all of them take.
_STALLED_S = 400.0


@pytest.fixture(scope="module")
def scaled(ray_environment: RayEnvironment) -> Iterator[RayCluster]:
    """A head alone, with the autoscaler (v2) and Ray's provider of nodes on one machine."""
    made = RayCluster.with_autoscaler(ray_environment, _MOST)
    try:
        yield made
    finally:
        made.close()


class Counts(threading.Thread):
    """How many machines there are, over time: seconds and a count, at each change."""

    def __init__(self, nodes: Nodes) -> None:
        super().__init__(daemon=True)
        self._nodes = nodes
        self._done = threading.Event()
        self.series: list[tuple[float, int]] = []
        self.started = time.monotonic()

    def run(self) -> None:
        while not self._done.wait(0.5):
            view = patiently(lambda: self._nodes.engine.describe(self._nodes.cluster.settings), 300)
            count = sum(node.state != "down" for node in view.nodes)
            if not self.series or self.series[-1][1] != count:
                self.series.append((round(time.monotonic() - self.started, 1), count))

    @property
    def now(self) -> int:
        return self.series[-1][1] if self.series else -1

    def stop(self) -> None:
        self._done.set()
        self.join()


class Described:
    """As executors/engines.py asks; an engine that is late is asked again."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def describe(
        self, engine: str, settings: Mapping[str, Any], max_age_s: float = 0.0
    ) -> EngineCluster:
        return patiently(lambda: self._nodes.engine.describe(settings), 300)


def test_machines_come_for_waiting_nodes_and_go_again(
    scaled: RayCluster, ray_home: Path, tmp_path: Path, clock: FakeClock
) -> None:
    nodes = Nodes(ray_home, tmp_path, scaled)
    counts = Counts(nodes)
    counts.start()
    # What a server records of it while a job holds the cluster's nodes, and after that.
    db = Database(f"sqlite:///{tmp_path / 'counts.db'}")
    db.upgrade()
    document = {"name": "lab", "max_instances": _MOST, "torchyard": scaled.settings}
    engines = ("local", "ray")
    lab = actions.create(db, clock, "default", document, engines=engines, may_name_files=True)
    recorded = MachineCounts(db, clock, Described(nodes))
    with db.write() as connection:
        holding = actions.Holding(connection)
        assert holding.try_hold("default", "lab", _MOST, "s1", clock.now()) == ""

    def last() -> int | None:
        recorded.record()
        return actions.samples(db, lab)[-1].machines

    try:
        wait_until(lambda: counts.now == last() == 0, 60, "an empty cluster")
        handle = nodes.launch(nodes.plan("s1", _MOST))
        assert "needs 4 machines" in nodes.wait(handle, ("pending",) * _MOST, 10).reason
        nodes.wait(handle, ("running",) * _MOST, 120)
        wait_until(lambda: counts.now == last() == _MOST, 10, "four machines")
        for node in range(_MOST):
            nodes.finish("s1", node)
        nodes.wait(handle, ("exited",) * _MOST)
        nodes.engine.release(handle)
        wait_until(lambda: counts.now == last() == 0, 120, "an empty cluster")
    finally:
        counts.stop()
        nodes.engine.close()
    print("machines over time:", json.dumps(counts.series))
    for series in (
        [count for _, count in counts.series],
        [sample.machines for sample in actions.samples(db, lab) if sample.machines is not None],
    ):
        assert series[0] == series[-1] == 0 and max(series) == _MOST
        assert set(series) <= set(range(_MOST + 1))


class Load:
    """Attempts of random sizes that end at once, so many at the same time as may be."""

    def __init__(self, nodes: Nodes, seed: int) -> None:
        self._nodes = nodes
        self._chance = random.Random(seed)
        self._open: dict[str, tuple[Handle, int]] = {}
        self._began = self._ended_at = time.monotonic()
        self.ended = 0

    def run(self, jobs: int) -> None:
        for number in range(jobs):
            self._launch(f"r{number}")
            self._settle(_AT_ONCE - 1)
        self._settle(0)

    def _launch(self, attempt: str) -> None:
        (count,) = self._chance.choices(range(1, _MOST + 1), _WEIGHTS)
        plan = self._nodes.plan(attempt, count)
        handle = patiently(lambda: self._nodes.engine.launch(plan), _STALLED_S)
        for node in range(count):
            self._nodes.finish(attempt, node)
        self._open[attempt] = handle, count

    def _settle(self, limit: int) -> None:
        """Until no more than so many are open."""
        while len(self._open) > limit:
            for attempt, (handle, count) in list(self._open.items()):
                if self._states(handle) == ("exited",) * count:
                    patiently(lambda handle=handle: self._nodes.engine.release(handle))  # type: ignore[misc]
                    del self._open[attempt]
                    self.ended, self._ended_at = self.ended + 1, time.monotonic()
            assert time.monotonic() - self._ended_at < _STALLED_S, self._stalled()
            time.sleep(0.1)

    def _states(self, handle: Handle) -> tuple[str, ...]:
        return patiently(lambda: self._nodes.engine.status(handle), _STALLED_S).nodes

    def _stalled(self) -> str:
        states = {
            attempt: self._nodes.status(handle) for attempt, (handle, _) in self._open.items()
        }
        took_s = self._ended_at - self._began
        return f"none of these ends; {self.ended} have, in {took_s:.0f} s: {states}"


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_random_load_never_has_more_machines_than_allowed(
    scaled: RayCluster, ray_home: Path, tmp_path: Path
) -> None:
    nodes = Nodes(ray_home, tmp_path, scaled)
    counts = Counts(nodes)
    counts.start()
    began = time.monotonic()
    try:
        Load(nodes, seed=18).run(_JOBS)
    finally:
        counts.stop()
        nodes.engine.close()
    took_s = time.monotonic() - began
    print(f"{_JOBS} jobs in {took_s:.0f} s; machines over time:", json.dumps(counts.series))
    assert max(count for _, count in counts.series) <= _MOST
