"""A Ray head that is killed and started again; test_ray_contract.py has jobs that run meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ray.ray_cluster import RayCluster, running_redis, wait_until
from ray.stub_nodes import Nodes
from torchyard.executors.executor import EngineUnreachable
from torchyard.executors.ray.head_nodes import Heads, RayHead
from torchyard.executors.ray.ray_environment import RayEnvironment
from torchyard.executors.ray.ray_variables import variables
from torchyard.node_agent.ray_node import processes_of_session
from torchyard.shared import processes

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


@contextmanager
def nodes_of(cluster: RayCluster, home: Path, folder: Path) -> Iterator[Nodes]:
    nodes = Nodes(home, folder, cluster)
    try:
        yield nodes
    finally:
        nodes.engine.close()
        cluster.close()


def test_without_redis_the_nodes_are_lost_and_say_so(
    ray_environment: RayEnvironment, ray_home: Path, tmp_path: Path
) -> None:
    with nodes_of(RayCluster(ray_environment, 2), ray_home, tmp_path) as nodes:
        handle = nodes.launch(nodes.plan("h1"))
        nodes.wait(handle, ("running", "running"))
        nodes.cluster.kill_head()
        killed_at = time.monotonic()

        def is_unreachable() -> bool:
            try:
                nodes.engine.status(handle)
            except EngineUnreachable:
                return True
            return False

        wait_until(is_unreachable, 10, "the loss of the head")
        print(f"{time.monotonic() - killed_at:.1f} s: noticed")
        nodes.cluster.start_head()
        print(f"{time.monotonic() - killed_at:.1f} s: the head is back")
        status = nodes.wait(handle, ("lost", "lost"), 60)
        print(f"{time.monotonic() - killed_at:.1f} s: {status.lost_because}")
        # Left alone they end by themselves, but only after most of a minute.
        for number in (1, 2):
            nodes.cluster.kill_node(number)
            nodes.cluster.start_node(number)
        assert "its head was restarted and lost its state" in status.lost_because[0]
        for node in (0, 1):
            wait_until(lambda: nodes.lines("h1", node)[-1] == "ended by EOF", 10, "its end")  # noqa: B023
        nodes.engine.release(handle)
        retried = nodes.launch(nodes.plan("h2"))
        nodes.wait(retried, ("running", "running"))
        print(f"{time.monotonic() - killed_at:.1f} s: the retry runs")
        nodes.engine.stop(retried, 10)
        nodes.wait(retried, ("exited", "exited"))
        nodes.engine.release(retried)


def _join(head: RayHead, environment: RayEnvironment, folder: Path) -> subprocess.Popen[bytes]:
    """A node of the head's own machine."""
    words = ["start", "--block", f"--address={head.address}", "--node-ip-address=127.0.0.2"]
    words += ["--num-cpus=1", "--disable-usage-stats", "--object-store-memory=80000000"]
    with open(folder / "node.log", "wb") as log:
        return subprocess.Popen(
            [environment.ray, *words, f"--temp-dir={folder / 'n'}"],
            env=variables(os.environ, environment, head.token_file),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def test_a_killed_head_starts_again_beside_a_node_of_its_machine(
    ray_environment: RayEnvironment,
) -> None:
    with tempfile.TemporaryDirectory(prefix="ty-h", dir="/tmp") as name:
        folder = Path(name)
        heads = Heads(folder, os.environ, lambda: ray_environment, lambda: "127.0.0.1")
        head = heads.ensure("lab")
        node = _join(head, ray_environment, folder)
        try:
            log = folder / "node.log"
            wait_until(lambda: "Ray runtime started" in log.read_text(), 90, "the node")
            leader = int(json.loads((folder / "lab" / "head.json").read_text())["pid"])
            _kill_session(leader)
            wait_until(
                lambda: all(process.ended for process in processes_of_session(leader)),
                30,
                "the end of the head",
            )
            # As init does for a server that is gone.
            lab = heads._children["lab"]
            wait_until(lambda: lab.poll() is not None, 30, "the end of the head's process")
            following = Heads(folder, os.environ, lambda: ray_environment, lambda: "127.0.0.1")
            assert following.find("lab") is None
            # Where machines look for it.
            assert following.ensure("lab") == head
            following.stop("lab")
        finally:
            _kill_session(node.pid)
            node.wait()
            heads.stop("lab")


def _kill_session(leader: int) -> None:
    for process in processes_of_session(leader):
        processes.send(process.pid, process.start_time, signal.SIGKILL)


@pytest.mark.long  # Ray gives up a head that takes over 30 s to start, as on a busy machine
def test_with_redis_a_head_killed_during_a_launch_costs_no_job_and_none_after_it(
    ray_environment: RayEnvironment, ray_home: Path, tmp_path: Path
) -> None:
    with (
        running_redis(tmp_path) as port,
        nodes_of(
            RayCluster(ray_environment, 2, redis_port=port, reconnect_s=60), ray_home, tmp_path
        ) as nodes,
    ):
        nodes.wait(nodes.launch(nodes.plan("r0")), ("running", "running"), 60)
        handle = nodes.launch(nodes.plan("r1", 1))
        nodes.cluster.kill_head()
        nodes.cluster.start_head()
        nodes.wait(handle, ("running",), 150)
        # The bridge's raylet was the head's: one that lived on could start no actor any more.
        after = nodes.launch(nodes.plan("r2", 1))
        nodes.wait(after, ("running",), 60)
