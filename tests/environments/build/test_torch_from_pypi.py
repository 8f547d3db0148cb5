"""PyPI's torch, on a machine without a GPU that reaches no index of PyTorch's."""

from __future__ import annotations

import platform
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments import package_index, wheels
from environments.conftest import Machine
from torchyard.base.clock import SystemClock
from torchyard.base.db import Database
from torchyard.base.errors import BuildFailed
from torchyard.environments.assembly import Environments
from torchyard.environments.packages import accelerators, lock
from torchyard.environments.types import Platform

ONE_DATABASE = True
_SIZES = {"torch": 900_000_000, "nvidia-cublas": 600_000_000}


@pytest.fixture
def environments(machine: Machine) -> Iterator[Environments]:
    """Without a GPU; all that answers is a stand-in for PyPI."""
    wheels.put(machine.wheels, "torch", "2.13.0", ("nvidia-cublas", "numpy"))
    wheels.put(machine.wheels, "nvidia-cublas", "13.0")
    wheels.put(machine.wheels, "numpy", "2.1")
    (machine.home / "offered").mkdir()
    database = Database(machine.database)
    database.upgrade()
    # A port that nobody listens at, for as long as the test keeps it.
    with package_index.serving(machine.wheels, _SIZES) as index, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        variables = {
            name: machine.variables[name]
            for name in ("PATH", "HOME", "PIP_CONFIG_FILE", "UV_CACHE_DIR", "UV_PYTHON_DOWNLOADS")
        }
        variables |= {
            "UV_DEFAULT_INDEX": index,
            "UV_FIND_LINKS": str(machine.home / "offered"),
            "UV_HTTP_RETRIES": "0",
            "HTTPS_PROXY": f"http://127.0.0.1:{closed.getsockname()[1]}",
            "NO_PROXY": "127.0.0.1",
        }
        node = Platform("linux", "x86_64", "cpu")
        yield Environments(machine.home, database, SystemClock(), variables, node)
    database.close()


def built(environments: Environments, requirement: str) -> tuple[dict[str, str], str]:
    """The versions that were installed, and the build's log."""
    spec = environments.resolver.resolve({"pip_requirements": [requirement]})
    environments.builds.run(spec)
    build = environments.records.last(spec.hash)
    assert build is not None
    return lock.pins(build.lock), Path(environments.folders.paths(spec.hash).log).read_text()


def test_it_is_taken_with_its_cuda_packages_and_its_size_is_told(
    environments: Environments,
) -> None:
    pins, log = built(environments, "torch")
    assert pins == {"torch": "2.13.0", "nvidia-cublas": "13.0", "numpy": "2.1"}
    assert "PyTorch's own index can't be reached: torch 2.13.0 is PyPI's" in log
    assert "needs 1 CUDA packages; the download is 1.5 GB" in log
    assert "let the machine reach PyTorch's own index, or put a CPU build of torch" in log


def test_it_is_taken_beside_a_cpu_build_of_another_version_which_the_log_names(
    environments: Environments, machine: Machine
) -> None:
    wheels.put(machine.home / "offered", "torch", "2.12.0+cpu")
    pins, log = built(environments, "torch==2.13.0")
    assert pins["torch"] == "2.13.0"
    assert "torch 2.13.0 is PyPI's" in log
    assert "the download is 1.5 GB" in log
    assert "request torch 2.12.0, which this machine offers" in log


def test_a_version_that_no_index_has_is_refused_with_the_one_that_is_offered(
    environments: Environments, machine: Machine
) -> None:
    wheels.put(machine.home / "offered", "torch", "2.12.0+cpu")
    spec = environments.resolver.resolve({"pip_requirements": ["torch==2.14.0"]})
    with pytest.raises(BuildFailed, match="no CPU build of it fits") as refused:
        environments.builds.run(spec)
    assert refused.value.hint == "request torch 2.12.0"


def test_the_wheels_that_fit_are_counted() -> None:
    def package(name: str, *files: tuple[str, int]) -> str:
        rows = ", ".join(
            f'{{ url = "https://files/x/{file}", upload-time = 2026-01-02T10:00:00Z, '
            f'size = {size}, hashes = {{ sha256 = "00" }} }}'
            for file, size in files
        )
        return f'[[packages]]\nname = "{name}"\nversion = "1"\nwheels = [{rows}]\n'

    machine = platform.machine()
    text = package(
        "torch",
        (f"torch-1-cp311-cp311-manylinux_2_28_{machine}.whl", 900),
        (f"torch-1-cp312-cp312-manylinux_2_28_{machine}.whl", 5000),
        ("torch-1-cp311-cp311-win_amd64.whl", 6000),
    ) + package("nvidia-cublas", (f"nvidia_cublas-1-py3-none-manylinux_2_27_{machine}.whl", 600))
    assert accelerators.wheels_bytes(text, {"torch", "nvidia-cublas"}, "3.11") == 1500
    assert accelerators.wheels_bytes(text, {"torch"}, "3.11") == 900
    assert accelerators.wheels_bytes(text, {"torch", "nvidia-cublas"}, "3.13") == 0
