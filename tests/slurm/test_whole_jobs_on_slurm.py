"""Trainings with torch, and jobs of Azure's real clients, on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from end_to_end.shared_torch import kept_or_temporary
from end_to_end.yard_under_test import Yard
from executors.azure_clients import AzureClientsContract
from executors.listening_yard import listening_yard
from executors.torch_training import TorchTraining
from slurm.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]
ONE_DATABASE = True


@pytest.fixture(scope="module")
def yard(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    torchyard = {
        "engine": "slurm",
        "partition": "low",
        "config": str(slurm.config),
        "node_folder": str(tmp_path_factory.mktemp("nodes")),
    }
    with (
        kept_or_temporary() as torch,
        listening_yard("whole-slurm", torchyard, 2, lambda home: torch.lend(home)) as yard,
    ):
        yield yard


class TestTorchTrainingOnSlurm(TorchTraining):
    @pytest.mark.smoke
    def test_a_rank_per_process(self, yard: Yard) -> None:
        super().test_a_rank_per_process(yard)


class TestAzureClientsOnSlurm(AzureClientsContract):
    pass
