"""Jobs' nodes on a real Ray cluster of three nodes, with a program in the worker's place."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contracts.engine_verbs_contract import EngineUnderTest, EngineVerbsContract
from ray.ray_cluster import RayCluster, wait_until
from ray.stub_nodes import Nodes, patiently
from torchyard.executors.executor import EngineUnreachable, Handle
from torchyard.executors.ray.engine import RayEngine
from torchyard.shared import processes
from torchyard.shared.plan import LaunchPlan

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def nodes(
    ray_home: Path, tmp_path_factory: pytest.TempPathFactory, cluster: RayCluster
) -> Iterator[Nodes]:
    made = Nodes(ray_home, tmp_path_factory.mktemp("nodes"), cluster)
    yield made
    made.engine.close()


class RayUnderTest(EngineUnderTest):
    lacks: Mapping[str, str] = {"probe": "its status names a dead machine within seconds"}

    def __init__(self, nodes: Nodes) -> None:
        self._nodes, self._numbers = nodes, itertools.count()
        self.settings = nodes.cluster.settings
        assert nodes.cluster.token_file is not None
        self.secrets = [nodes.cluster.token_file.read_text()]

    def open(self) -> RayEngine:
        return self._nodes.new_engine()

    def plan(self) -> LaunchPlan:
        return self._nodes.plan(f"v{next(self._numbers)}", 1)

    @contextmanager
    def unreachable(self) -> Iterator[tuple[Mapping[str, Any], Handle]]:
        """A port that takes connections, and says nothing."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            settings = {**self.settings, "address": f"127.0.0.1:{silent.getsockname()[1]}"}
            yield settings, Handle("ray", {"attempt": "v", "nodes": 1, "settings": settings})

    def held(self, plan: LaunchPlan) -> list[str]:
        remaining = self._nodes.cluster.list_remaining()
        return [name for name in remaining if f"-{plan.attempt_id}" in name]


class TestRayVerbs(EngineVerbsContract):
    @pytest.fixture
    def site(self, nodes: Nodes) -> EngineUnderTest:
        return RayUnderTest(nodes)


def groups(nodes: Nodes) -> list[str]:
    """The attempts that Ray still holds something for."""
    cluster = next(iter(nodes.engine._clusters.values()))
    groups = cluster.bridge.ask("describe", 10, 60)["groups"]
    assert isinstance(groups, list)
    return groups


def test_nodes_start_once_on_machines_of_their_own_and_leave_nothing(nodes: Nodes) -> None:
    plan = nodes.plan("a1")
    handle = nodes.launch(plan)
    assert nodes.launch(plan) == handle
    assert Handle.from_json(handle.to_json()) == handle
    assert "secret" not in str(handle.to_json())
    nodes.wait(handle, ("running", "running"))
    nodes.finish("a1", 0)
    nodes.wait(handle, ("exited", "running"))
    nodes.finish("a1", 1, 3, "boom")
    nodes.wait(handle, ("exited", "exited"))
    assert [len(nodes.lines("a1", node)) for node in (0, 1)] == [2, 2]
    starts = [nodes.lines("a1", node)[0].split() for node in (0, 1)]
    assert len({start[2] for start in starts}) == 2
    assert [start[3:] for start in starts] == [["[]", "[]"], ["[]", "[]"]]
    assert groups(nodes) == ["a1"]
    nodes.engine.release(handle)
    nodes.launches.remove("a1")
    assert groups(nodes) == []
    nodes.engine.release(handle)


def test_a_node_that_can_not_run_the_worker_says_why(nodes: Nodes) -> None:
    handle = nodes.launch(nodes.plan("a2", 1))
    nodes.finish("a2", 0, 125, "error: node 0 can't be used: its disk is full\nhint: free it")
    status = nodes.wait(handle, ("lost",))
    because = status.lost_because[0]
    assert because.endswith(": node 0 can't be used: its disk is full; hint: free it")
    nodes.engine.release(handle)


def test_stopping_asks_first_and_kills_after_the_grace_period(nodes: Nodes) -> None:
    handle = nodes.launch(nodes.plan("a3"))
    nodes.wait(handle, ("running", "running"))
    nodes.engine.stop(handle, 10)
    nodes.wait(handle, ("exited", "exited"))
    assert nodes.lines("a3", 0)[-1] == "ended by SIGTERM"
    nodes.engine.release(handle)
    handle = nodes.launch(nodes.plan("a4", 1))
    nodes.wait(handle, ("running",))
    pid = int(nodes.lines("a4", 0)[0].split()[1])
    os.kill(pid, signal.SIGSTOP)
    nodes.engine.stop(handle, 0.5)
    nodes.wait(handle, ("exited",))
    # Not `/proc/<pid>`: in a container without an init nobody reaps it.
    assert processes.start_time(pid) == 0
    nodes.engine.release(handle)


def test_waiting_nodes_say_for_what_and_can_be_stopped(nodes: Nodes) -> None:
    first = nodes.launch(nodes.plan("a5", 3, cores=2))
    nodes.wait(first, ("running",) * 3)
    second = nodes.launch(nodes.plan("a6", 2, cores=1))
    status = nodes.wait(second, ("pending", "pending"))
    assert status.reason.startswith("waits for machines: needs 2 machines, and 0 are free")
    third = nodes.launch(nodes.plan("a7", 4))
    reason = nodes.wait(third, ("pending",) * 4).reason
    assert "needs 4 machines of its size, and the Ray cluster has 3" in reason
    assert "torchyard-s1-a7" in reason
    nodes.engine.stop(third, 10)
    nodes.wait(third, ("exited",) * 4)
    nodes.engine.stop(first, 10)
    nodes.wait(first, ("exited",) * 3)
    nodes.engine.release(first)
    nodes.wait(second, ("running", "running"))
    nodes.engine.stop(second, 10)
    nodes.wait(second, ("exited", "exited"))
    for handle in (second, third):
        nodes.engine.release(handle)
    assert groups(nodes) == []


def test_nodes_whose_places_in_ray_are_never_free_are_placed_again_or_lost(nodes: Nodes) -> None:
    nodes.cluster.take_places("torchyard-s1", "torchyard-s1-p1", (0, 1))
    nodes.cluster.take_places("torchyard-s1", "torchyard-s1-p2", (1,))
    complete, half = (nodes.launch(nodes.plan(attempt)) for attempt in ("p1", "p2"))
    nodes.wait(complete, ("running", "running"), 60)
    assert [len(nodes.lines("p1", node)) for node in (0, 1)] == [1, 1]
    # One of its nodes runs, and would end with the group.
    status = nodes.wait(half, ("running", "lost"), 120)
    assert "has a place in the Ray cluster, and Ray does not start it" in status.lost_because[1]
    for handle in (complete, half):
        nodes.engine.stop(handle, 10)
    nodes.wait(complete, ("exited", "exited"))
    nodes.wait(half, ("exited", "lost"))
    for handle in (complete, half):
        nodes.engine.release(handle)
    assert groups(nodes) == []


def test_a_killed_bridge_costs_nothing(nodes: Nodes) -> None:
    running = nodes.launch(nodes.plan("b1", 2))
    waiting = nodes.launch(nodes.plan("b2", 3, cores=2))
    nodes.wait(running, ("running", "running"))
    cluster = next(iter(nodes.engine._clusters.values()))
    pid = cluster.bridge.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: cluster.bridge.pid is None, 5, "the end of the bridge")
    nodes.finish("b1", 0)  # while nobody looks
    nodes.wait(running, ("exited", "running"))
    assert cluster.bridge.pid != pid
    nodes.wait(waiting, ("pending",) * 3)
    nodes.finish("b1", 1)
    nodes.wait(running, ("exited", "exited"))
    nodes.engine.release(running)
    nodes.wait(waiting, ("running",) * 3)
    assert len(nodes.lines("b2", 2)) == 1
    nodes.engine.stop(waiting, 10)
    nodes.wait(waiting, ("exited",) * 3)
    nodes.engine.release(waiting)


def test_a_server_that_was_killed_finds_its_nodes_again(nodes: Nodes) -> None:
    plan = nodes.plan("c1", 2)
    handle = nodes.launch(plan)
    nodes.wait(handle, ("running", "running"))
    nodes.engine.close()
    nodes.engine = nodes.new_engine()
    assert nodes.launch(plan) == handle  # it died before it stored the handle
    nodes.wait(handle, ("running", "running"))
    assert [len(nodes.lines("c1", node)) for node in (0, 1)] == [1, 1]
    nodes.engine.stop(handle, 10)
    nodes.wait(handle, ("exited", "exited"))
    nodes.engine.release(handle)


def test_what_a_server_left_behind_is_removed(nodes: Nodes) -> None:
    handle = nodes.launch(nodes.plan("d1", 1))
    nodes.wait(handle, ("running",))
    nodes.launches.remove("d1")
    nodes.engine.close()
    nodes.engine = nodes.new_engine()
    patiently(lambda: nodes.engine.describe(nodes.cluster.settings))
    wait_until(lambda: groups(nodes) == [], 5, "the removal")
    wait_until(lambda: nodes.lines("d1", 0)[-1] == "ended by EOF", 10, "the end of the node")


def test_two_servers_on_one_cluster_are_kept_apart(
    nodes: Nodes, ray_home: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Nodes(ray_home, tmp_path / "other", nodes.cluster, "s2")
    try:
        handles = [each.launch(each.plan("e1", 1)) for each in (nodes, other)]
        nodes.wait(handles[0], ("running",))
        other.wait(handles[1], ("running",))
        nodes.engine.stop(handles[0], 10)
        nodes.wait(handles[0], ("exited",))
        nodes.engine.release(handles[0])
        assert groups(nodes) == []
        assert groups(other) == ["e1"]
        assert other.status(handles[1]).nodes == ("running",)
        other.engine.stop(handles[1], 10)
        other.wait(handles[1], ("exited",))
        other.engine.release(handles[1])
    finally:
        other.engine.close()


def test_a_cluster_is_described(nodes: Nodes) -> None:
    handle = nodes.launch(nodes.plan("f1", 1))
    nodes.wait(handle, ("running",))
    view = nodes.engine.describe(nodes.cluster.settings)
    assert view.version.startswith("2.60.0, Python 3.")
    assert sorted(node.address for node in view.nodes) == ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    assert {node.cpus for node in view.nodes} == {2}
    busy = [node for node in view.nodes if node.users]
    assert [(node.state, node.users) for node in busy] == [("running", ("job-f1",))]
    assert view.notices == ()
    nodes.engine.stop(handle, 0)
    nodes.wait(handle, ("exited",))
    nodes.engine.release(handle)


def test_a_killed_node_is_named_within_ten_seconds(nodes: Nodes) -> None:
    handle = nodes.launch(nodes.plan("g1", 2))
    nodes.wait(handle, ("running", "running"))
    address = nodes.lines("g1", 0)[0].split()[2]
    number = int(address.rpartition(".")[2]) - 1
    nodes.cluster.kill_node(number)
    try:
        killed_at = time.monotonic()
        status = nodes.wait(handle, ("lost", "running"), 10)
        print(f"lost after {time.monotonic() - killed_at:.1f} s: {status.lost_because}")
        assert status.lost_because[0].startswith(f"{address}: the Ray node")
        assert nodes.lines("g1", 0)[-1] == "ended by EOF"
        nodes.engine.stop(handle, 10)
        nodes.wait(handle, ("lost", "exited"))
        nodes.engine.release(handle)
    finally:
        nodes.cluster.start_node(number)
    assert groups(nodes) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"address": "127.0.0.1:1"}, "nothing answers at the Ray address `127.0.0.1:1`"),
        ({"token_file": "/dev/null"}, "needs the token in `/dev/null`, .*: it is empty"),
        ({"token_file": "wrong"}, "refuses this server's token"),
        ({"token_file": None}, "refuses this server's token"),
    ],
)
def test_a_wrong_address_and_a_wrong_token_are_told(
    nodes: Nodes, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    if changes.get("token_file") == "wrong":
        changes = {"token_file": str(tmp_path / "token")}
        (tmp_path / "token").write_text("0" * 64)
    started = time.monotonic()
    with pytest.raises(EngineUnreachable, match=message) as caught:
        nodes.engine.describe({**nodes.cluster.settings, **changes})
    assert caught.value.hint
    if "address" in changes:
        assert time.monotonic() - started < 5
