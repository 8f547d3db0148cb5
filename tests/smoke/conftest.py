"""One home, one server and the built environments of all smoke tests.

Owns: which of them the tests share.
Leaves: the harness to end_to_end/; jobs and what becomes of them to the tests.
Always: environments are built in fixtures, from pinned requirements; tests download nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from end_to_end.conftest import (
    new_url,
    nothing_goes_on,
    shared_torch,
    torch_environment,
    write_job,
)
from end_to_end.yard_under_test import Yard, running_yard

__all__ = ["new_url", "nothing_goes_on", "shared_torch", "torch_environment", "write_job"]

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


@pytest.fixture(scope="session")
def yard(new_url: Callable[[], str]) -> Iterator[Yard]:
    with running_yard("smoke", new_url()) as yard:
        yield yard


@pytest.fixture(scope="session")
def tracking_environment(yard: Yard) -> str:
    """The name of the environment with mlflow and mpi4py, built."""
    yard("environment", "create", "-n", "tracking", "--pip-requirements", str(REQUIREMENTS))
    yard("environment", "build", "tracking")
    return "azureml:tracking@latest"


@pytest.fixture(scope="session")
def pinned() -> dict[str, str]:
    """The versions in the lock, by package, for environments that tests build."""
    lines = REQUIREMENTS.read_text().splitlines()
    return dict(line.split("==") for line in lines if ";" not in line)
