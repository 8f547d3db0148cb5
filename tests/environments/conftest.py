"""Environments whose packages come from a folder of wheels made by the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from torchyard.base.clock import SystemClock
from torchyard.base.db import Database
from torchyard.environments.assembly import Environments
from torchyard.environments.build.image_environments import FindEngine
from torchyard.environments.images import containers
from torchyard.environments.types import Accelerator, Platform


@dataclass(frozen=True)
class Machine:
    """A machine without network: its home, its wheels, its variables, its database's URL."""

    home: Path
    wheels: Path
    variables: dict[str, str]
    database: str


@pytest.fixture
def machine(tmp_path: Path, database_url: str) -> Machine:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_NO_INDEX": "1",
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_OFFLINE": "1",
    }
    return Machine(home, wheels, variables, database_url)


MakeEnvironments = Callable[..., Environments]


@pytest.fixture
def make_environments(machine: Machine) -> Iterator[MakeEnvironments]:
    databases = []

    def make(
        accelerator: Accelerator = "cpu",
        find_engine: FindEngine = containers.find,
        wheel_folder: Path | None = None,
    ) -> Environments:
        database = Database(machine.database)
        database.upgrade()
        databases.append(database)
        platform = Platform("linux", "x86_64", accelerator)
        return Environments(
            machine.home,
            database,
            SystemClock(),
            machine.variables,
            platform,
            find_engine=find_engine,
            wheel_folder=wheel_folder,
        )

    yield make
    for database in databases:
        database.close()


@pytest.fixture
def environments(make_environments: MakeEnvironments) -> Environments:
    return make_environments()
