"""Shells and services inside jobs, and an online endpoint, on a real Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from end_to_end.yard_under_test import Yard
from executors import endpoint_on_nodes
from executors.inside_jobs import InsideJobs
from executors.listening_yard import CLUSTER, listening_yard
from ray.ray_cluster import RayCluster, lend_environment
from torchyard import Client
from torchyard.base import settings
from torchyard.executors.ray.ray_environment import RayEnvironment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def yard(
    cluster: RayCluster, ray_environment: RayEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    torchyard = {**cluster.settings, "node_folder": str(tmp_path_factory.mktemp("nodes"))}

    def prepare(home: Path) -> None:
        lend_environment(home, ray_environment)

    with listening_yard("inside-ray", torchyard, 3, prepare) as yard:
        yield yard


class TestInsideJobsOnRay(InsideJobs):
    pass


# By hand: it was written on a machine too busy to run it.
@pytest.mark.long
def test_an_endpoint_answers_from_its_nodes(yard: Yard, tmp_path: Path) -> None:
    with Client(settings=settings.read(yard.variables), start=False) as client:
        endpoint_on_nodes.check(client, tmp_path, CLUSTER)
