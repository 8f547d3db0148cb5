"""Shells and services inside jobs, and an online endpoint, on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from end_to_end.yard_under_test import Yard
from executors import endpoint_on_nodes
from executors.inside_jobs import InsideJobs
from executors.listening_yard import CLUSTER, listening_yard
from slurm.slurm_cluster import SlurmCluster
from torchyard import Client
from torchyard.base import settings

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]
ONE_DATABASE = True


@pytest.fixture(scope="module")
def yard(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    torchyard = {
        "engine": "slurm",
        "partition": "low",
        "config": str(slurm.config),
        "node_folder": str(tmp_path_factory.mktemp("nodes")),
    }
    with listening_yard("inside-slurm", torchyard, 2) as yard:
        yield yard


@pytest.fixture(autouse=True)
def nothing_goes_on() -> None:
    """The class's job runs from test to test."""


class TestInsideJobsOnSlurm(InsideJobs):
    pass


# By hand: it was written on a machine too busy to run it.
@pytest.mark.long
def test_an_endpoint_answers_from_its_nodes(yard: Yard, tmp_path: Path) -> None:
    with Client(settings=settings.read(yard.variables), start=False) as client:
        endpoint_on_nodes.check(client, tmp_path, CLUSTER)
