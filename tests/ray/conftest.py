"""What these tests need: Ray's own environment, and Redis; `make ray` brings both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray.ray_cluster import RayCluster
from torchyard.base.errors import BuildFailed
from torchyard.base.home.uv import find_uv
from torchyard.executors.ray.ray_environment import (
    RayEnvironment,
    RayEnvironments,
    RayVersion,
)


@pytest.fixture(scope="session")
def ray_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in whose `engines` Ray's environment is; kept between runs by `make ray`."""
    folder = os.environ.get("TORCHYARD_TEST_RAY_HOME")
    return Path(folder).absolute() if folder else tmp_path_factory.mktemp("ray-home")


@pytest.fixture(scope="session")
def ray_environment(ray_home: Path) -> RayEnvironment:
    is_required = os.environ.get("TORCHYARD_TEST_SERVICES") == "required"
    try:
        return RayEnvironments(ray_home, find_uv(), os.environ).get(RayVersion())
    except BuildFailed as error:
        if is_required:
            raise
        pytest.skip(error.message)


@pytest.fixture(scope="module")
def cluster(ray_environment: RayEnvironment) -> Iterator[RayCluster]:
    started = RayCluster(ray_environment)
    try:
        yield started
    finally:
        started.close()
