"""The contract of engines, with a real Slurm without accounting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executors.engine_contract import EngineContract, EngineSite, Place, placed
from slurm.slurm_cluster import SlurmCluster, need
from torchyard.client.job import Job

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]
ONE_DATABASE = True
# Later than the loss is noticed; a machine that boots takes longer.
_BOOT_S = 20.0


class SlurmSite(EngineSite):
    most_nodes = 2

    def __init__(self, folder: Path) -> None:
        self.cluster = SlurmCluster(accounting=False, slurmd_timeout_s=10).start()
        self.torchyard = {
            "engine": "slurm",
            "partition": "low",
            "config": str(self.cluster.config),
            "node_folder": str(folder),
        }
        self._boots: list[threading.Timer] = []

    def lose_machine(self, job: Job, node: int) -> str:
        name = f"n{node + 1}"
        self.cluster.kill_machine(name)
        boot = threading.Timer(_BOOT_S, self.cluster.start_node, [name])
        boot.start()
        self._boots.append(boot)
        return name

    def lost_processes(self) -> list[str]:
        return [str(pid) for pid in self.cluster.processes_of_jobs()]

    def list_remaining(self) -> list[str]:
        return self.cluster.jobs()

    def stop_head(self) -> Callable[[], None]:
        # Killed, it forgets jobs that it took in the last seconds.
        self.cluster.stop("slurmctld")
        return self.cluster.start_controller

    def close(self) -> None:
        for boot in self._boots:
            boot.cancel()
            boot.join()
        self.cluster.close()


@pytest.fixture(scope="module")
def engine_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    need()
    folder = tmp_path_factory.mktemp("slurm")
    site = SlurmSite(folder / "nodes")
    try:
        with placed(folder, site) as made:
            yield made
    finally:
        site.close()


class TestSlurm(EngineContract):
    pass
