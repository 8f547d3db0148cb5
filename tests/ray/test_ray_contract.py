"""What every engine must keep, by real jobs on a real Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executors.engine_contract import EngineContract, EngineSite, Place, placed
from ray.ray_cluster import RayCluster, command_of, running_redis, wait_until
from torchyard.client.job import Job
from torchyard.executors.ray.ray_environment import RayEnvironment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


class RaySite(EngineSite):
    most_nodes = 3

    def __init__(self, cluster: RayCluster, folder: Path) -> None:
        self.cluster = cluster
        self.torchyard = {**cluster.settings, "node_folder": str(folder)}

    def lose_machine(self, job: Job, node: int) -> str:
        workers: list[int] = []

        def is_there() -> bool:
            workers[:] = [
                pid
                for pid in self.cluster.job_processes("--start")
                if f"--node {node} " in command_of(pid) + " "
            ]
            return bool(workers)

        wait_until(is_there, 20, "the worker of the node")
        number = self.cluster.machine_of(workers[0])
        self.cluster.kill_machine(number)
        return f"127.0.0.{number + 1}"

    def lost_processes(self) -> list[str]:
        programs = ("--start", "train.py")
        return [
            command_of(pid) for program in programs for pid in self.cluster.job_processes(program)
        ]

    def list_remaining(self) -> list[str]:
        return self.cluster.list_remaining()

    def stop_head(self) -> Callable[[], None] | None:
        self.cluster.kill_head()
        return self.cluster.start_head


@pytest.fixture(scope="module")
def lasting_cluster(
    ray_environment: RayEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RayCluster]:
    """Its head keeps its state in Redis."""
    with running_redis(tmp_path_factory.mktemp("redis")) as port:
        started = RayCluster(ray_environment, redis_port=port)
        try:
            yield started
        finally:
            started.close()


@pytest.fixture(scope="module")
def engine_site(
    lasting_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("engine")
    with placed(folder, RaySite(lasting_cluster, folder / "nodes")) as made:
        yield made


@pytest.fixture(autouse=True)
def all_machines(lasting_cluster: RayCluster) -> None:
    """Those that the test before this one lost are there again."""
    for number in {1, 2, 3} - set(lasting_cluster.nodes):
        lasting_cluster.start_node(number)


class TestRay(EngineContract):
    pass
