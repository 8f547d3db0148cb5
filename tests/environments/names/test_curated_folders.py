"""The files in each folder of the curated environments agree with each other."""

from __future__ import annotations

import pytest

from torchyard.environments.names import curated_environments
from torchyard.environments.packages import layers, lock, undeclared_limits
from torchyard.environments.packages.requirements import package_name


@pytest.mark.parametrize("name", [environment.name for environment in curated_environments.every()])
def test_contents_include_the_requirements(name: str) -> None:
    curated = curated_environments.find_by_name(name)
    assert curated is not None
    names = {package_name(line) for line in curated.packages}
    assert {package_name(line) for line in curated.requirements} <= names
    pinned = {package_name(line): line.partition("==")[2] for line in curated.pinned}
    assert all(pinned.values()), "every package has its version"
    for line in curated.requirements:
        version = line.partition("==")[2]
        assert not version or pinned[package_name(line)] == version


@pytest.mark.parametrize("name", [environment.name for environment in curated_environments.every()])
def test_no_package_is_beside_one_that_it_is_known_not_to_work_with(name: str) -> None:
    curated = curated_environments.find_by_name(name)
    assert curated is not None
    assert undeclared_limits.of(lock.pins("\n".join(curated.packages))) == {}


def test_a_twin_that_was_never_built_is_locked_and_says_so() -> None:
    cpu, cuda = (
        curated_environments.find_by_name("acpt-pytorch-2.13-cpu"),
        curated_environments.find_by_name("acpt-pytorch-2.13-cuda13.0"),
    )
    assert cpu is not None and cuda is not None
    assert (cpu.twin, cuda.twin) == (cuda.name, cpu.name)
    assert not cuda.contents and len(cuda.locked) > len(cuda.requirements)
    names = {package_name(line) for line in cuda.locked}
    assert {"nvidia-cublas", "onnxruntime-gpu"} <= names
    # Apart from builds for CUDA, both are the same.
    assert {package_name(line) for line in cpu.requirements} - names == {"onnxruntime"}
    remaining, layered, _ = layers.split(cuda.pinned)
    assert {"horovod", "nebulaml", "torch-ort", "torchyard-train"} <= set(layered)
    assert not any("+torchyard" in line for line in (*remaining, *cuda.pinned))
