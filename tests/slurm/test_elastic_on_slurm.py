"""An elastic training on a real Slurm that loses a node and gets it back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from end_to_end.yard_under_test import Yard
from executors.elastic_training import ElasticTraining, Machines
from executors.listening_yard import listening_yard
from slurm.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1200)]
ONE_DATABASE = True


class _Nodes:
    def __init__(self, slurm: SlurmCluster) -> None:
        self._slurm = slurm

    def lose(self) -> None:
        self._slurm.kill_machine("n2")

    def give_back(self) -> None:
        self._slurm.start_node("n2")
        # Slurm itself takes a node back that it has set down only when somebody says so.
        self._slurm.wait_until(lambda: self._takes_jobs(), "n2 takes jobs", 60)

    def _takes_jobs(self) -> bool:
        if self._slurm.node_states()[1].startswith("idle"):
            return True
        with contextlib.suppress(AssertionError):  # it is not down, or not yet
            self._slurm.run("scontrol", "update", "NodeName=n2", "State=RESUME")
        return False


@pytest.fixture(scope="module")
def yard(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    torchyard = {
        "engine": "slurm",
        "partition": "low",
        "config": str(slurm.config),
        "node_folder": str(tmp_path_factory.mktemp("nodes")),
    }
    with listening_yard("elastic-slurm", torchyard, 2) as yard:
        yield yard


class TestElasticTrainingOnSlurm(ElasticTraining):
    @pytest.fixture
    def machines(self, slurm: SlurmCluster) -> Machines:
        return _Nodes(slurm)
