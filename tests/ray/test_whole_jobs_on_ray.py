"""Trainings with torch, and jobs of Azure's real clients, on a real Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from end_to_end.shared_torch import kept_or_temporary
from end_to_end.yard_under_test import Yard
from executors.azure_clients import AzureClientsContract
from executors.listening_yard import listening_yard
from executors.torch_training import TorchTraining
from ray.ray_cluster import RayCluster, lend_environment
from torchyard.executors.ray.ray_environment import RayEnvironment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def yard(
    cluster: RayCluster, ray_environment: RayEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    torchyard = {**cluster.settings, "node_folder": str(tmp_path_factory.mktemp("nodes"))}
    with kept_or_temporary() as torch:

        def prepare(home: Path) -> None:
            lend_environment(home, ray_environment)
            torch.lend(home)

        with listening_yard("whole-ray", torchyard, 3, prepare) as yard:
            yield yard


class TestTorchTrainingOnRay(TorchTraining):
    @pytest.mark.smoke
    def test_a_rank_per_process(self, yard: Yard) -> None:
        super().test_a_rank_per_process(yard)


class TestAzureClientsOnRay(AzureClientsContract):
    pass
