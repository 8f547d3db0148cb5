"""A torchyard of the test session's own, and nothing left of it.

Owns: the temporary home folder and the server's life.
Leaves: asking it to yard_under_test.py.
Always: at the end no process that knows the home folder is alive.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from end_to_end.shared_torch import RESUMABLE, SharedTorch, kept_or_temporary
from end_to_end.yard_under_test import Yard, running_yard
from postgres_server import PostgresServer


@pytest.fixture(scope="session")
def new_url() -> Iterator[Callable[[], str]]:
    """Makes URLs of databases: of PostgreSQL, if so asked, else empty for a home's own file."""
    if os.environ.get("TORCHYARD_TEST_DATABASE", "sqlite") == "sqlite":
        yield lambda: ""
        return
    server = PostgresServer()
    yield server.new_database
    server.close()


@pytest.fixture(scope="session")
def yard(new_url: Callable[[], str]) -> Iterator[Yard]:
    with running_yard("end-to-end", new_url()) as yard:
        yield yard


@pytest.fixture(autouse=True)
def nothing_goes_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test that failed in the middle has started does not run on into the others."""
    yield
    if "yard" in request.fixturenames:
        request.getfixturevalue("yard").quiet_down()


@pytest.fixture
def write_job(tmp_path: Path) -> Callable[..., str]:
    """Write a job file with its code, and return the file's path."""

    def write(job: dict[str, Any], **scripts: str) -> str:
        code = tmp_path / "code"
        code.mkdir(exist_ok=True)
        for name, text in scripts.items():
            (code / f"{name}.py").write_text(text)
        file = tmp_path / "job.yml"
        file.write_text(yaml.safe_dump({"environment": "python", "code": "code", **job}))
        return str(file)

    return write


@pytest.fixture(scope="session")
def shared_torch() -> Iterator[SharedTorch]:
    """Kept where the variable says, for the next session and those beside this one."""
    with kept_or_temporary() as shared:
        yield shared


@pytest.fixture(scope="session")
def torch_environment(shared_torch: SharedTorch, yard: Yard) -> dict[str, str]:
    """What a job file says of the environment with torch, which the session's `yard` has."""
    return shared_torch.lend(yard.home)


@pytest.fixture(scope="session")
def resumable_environment(shared_torch: SharedTorch, yard: Yard) -> dict[str, str]:
    """As `torch_environment`, with `torchyard-train` in it: that of two of the examples."""
    return shared_torch.lend(yard.home, RESUMABLE)
