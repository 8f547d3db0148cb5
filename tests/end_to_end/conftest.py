"""A torchyard of the test session's own, and nothing left of it.

Owns: the temporary home folder and the server's life.
Leaves: asking it to yard_under_test.py.
Always: at the end no process that knows the home folder is alive.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from yard_under_test import REPOSITORY, Yard, remove, wait_until

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
    home = Path(tempfile.mkdtemp(prefix="torchyard-end-to-end-"))
    yard = Yard(home, new_url())
    try:
        yard("server", "start")
        yield yard
        yard("server", "stop")
        wait_until(lambda: not yard.processes(), 15, "every process of the server has ended")
    finally:
        for process in yard.processes():
            with contextlib.suppress(OSError):
                os.kill(int(process.split()[0]), signal.SIGKILL)
        remove(home)


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
def torch_environment() -> dict[str, str]:
    """One environment for every test with torch: the digits example's, so that it is built once."""
    return {"pip_requirements": str(REPOSITORY / "examples/digits/requirements.txt")}
