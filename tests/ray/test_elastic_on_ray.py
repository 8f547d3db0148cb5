"""An elastic training on a real Ray cluster that loses a machine and gets it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from end_to_end.yard_under_test import Yard
from executors.elastic_training import ElasticTraining, Machines
from executors.listening_yard import listening_yard
from ray.ray_cluster import RayCluster, lend_environment
from torchyard.executors.ray.ray_environment import RayEnvironment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1200)]


class _Nodes:
    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster

    def lose(self) -> None:
        self._cluster.kill_machine(2)

    def give_back(self) -> None:
        self._cluster.start_node(2)


@pytest.fixture(scope="module")
def two_machines(ray_environment: RayEnvironment) -> Iterator[RayCluster]:
    started = RayCluster(ray_environment, nodes=2)
    try:
        yield started
    finally:
        started.close()


@pytest.fixture(scope="module")
def yard(
    two_machines: RayCluster,
    ray_environment: RayEnvironment,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Yard]:
    torchyard = {**two_machines.settings, "node_folder": str(tmp_path_factory.mktemp("nodes"))}

    def prepare(home: Path) -> None:
        lend_environment(home, ray_environment)

    with listening_yard("elastic-ray", torchyard, 2, prepare) as yard:
        yield yard


class TestElasticTrainingOnRay(ElasticTraining):
    @pytest.fixture
    def machines(self, two_machines: RayCluster) -> Machines:
        return _Nodes(two_machines)
