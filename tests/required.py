"""What tests need of the machine: they skip without it, and fail where it must be there.

Always: `TORCHYARD_TEST_SERVICES=required`, which CI says, makes it a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NoReturn

import pytest


def missing(requirement: str) -> NoReturn:
    """Skip the test, or fail it."""
    if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
        pytest.fail(requirement)
    pytest.skip(requirement)


def open_mpi() -> None:
    mpirun = shutil.which("mpirun")
    version = ""
    if mpirun:
        version = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    if "(Open MPI) 4" not in version:
        missing("Open MPI 4 is not installed: `make mpi`, or `apt-get install openmpi-bin`")
