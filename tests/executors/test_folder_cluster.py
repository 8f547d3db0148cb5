"""The contract of engines, with machines that are folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from executors.engine_contract import EngineContract, EngineSite, Place, placed
from executors.folder_cluster import NAME, FolderCluster, FolderEngine
from torchyard.client.job import Job
from torchyard.executors.engines import Opener

pytestmark = pytest.mark.slow


class FolderSite(EngineSite):
    torchyard = {"engine": NAME}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.cluster = FolderCluster(folder, self.most_nodes)
        self._home = folder.parent / "home"

    @property
    def openers(self) -> Mapping[str, Opener]:
        return {NAME: lambda: FolderEngine(self.cluster, self._home)}

    def lose_machine(self, job: Job, node: int) -> str:
        machine = next(
            machine
            for machine in self.cluster.machines
            if machine.attempt_id and machine.node == node
        )
        machine.die()
        # A new one takes its place.
        self.cluster.machines.append(type(machine)(machine.folder.with_name("spare")))
        return machine.name

    def lost_processes(self) -> list[str]:
        return [
            f"{machine.name}: {pid}"
            for machine in self.cluster.machines
            for pid in machine.processes()
        ]

    def list_remaining(self) -> list[str]:
        return sorted(set(self.cluster.starts) - set(self.cluster.released))

    def stop_head(self) -> Callable[[], None]:
        self.cluster.is_reachable = False

        def bring_back() -> None:
            self.cluster.is_reachable = True

        return bring_back


@pytest.fixture(scope="module")
def engine_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("engine")
    site = FolderSite(folder / "machines")
    try:
        with placed(folder, site) as made:
            yield made
    finally:
        site.cluster.close()


class TestFolderEngine(EngineContract):
    pass
