"""The build of torch in an environment without an image, and in its lock."""

from __future__ import annotations

import pytest

from environments import wheels
from environments.conftest import Machine, MakeEnvironments
from torchyard.environments.build.builder import site_packages
from torchyard.environments.packages import lock
from torchyard.environments.types import Accelerator


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accelerator", "expected"),
    [
        ("cpu", {"torch": "2.13.0+cpu"}),
        ("cuda", {"torch": "2.13.0", "nvidia-cublas": "13.0"}),
        ("rocm", {"torch": "2.13.0+rocm6.4"}),
    ],
)
def test_the_build_of_torch_fits_the_node(
    make_environments: MakeEnvironments,
    machine: Machine,
    accelerator: Accelerator,
    expected: dict[str, str],
) -> None:
    wheels.put(machine.wheels, "nvidia-cublas", "13.0")
    wheels.put(machine.wheels, "torch", "2.13.0", ("nvidia-cublas",))
    for build in ("2.13.0+cpu", "2.13.0+rocm6.4"):
        wheels.put(machine.wheels, "torch", build)
    environments = make_environments(accelerator)
    spec = environments.resolver.resolve({"pip_requirements": ["torch==2.13.0"]})
    folder = environments.builds.run(spec)
    last_build = environments.records.last(spec.hash)
    assert last_build is not None and lock.pins(last_build.lock) == expected
    assert spec.platform == f"linux-x86_64-{accelerator}"
    names = [path.name for path in site_packages(folder).glob("torch-*.dist-info")]
    assert names == [f"torch-{expected['torch']}.dist-info"]
    # A second build from the lock is the same.
    assert environments.folders.remove(spec.hash, lambda connection: False)
    names = [
        path.name for path in site_packages(environments.builds.run(spec)).glob("torch-*.dist-info")
    ]
    assert names == [f"torch-{expected['torch']}.dist-info"]
