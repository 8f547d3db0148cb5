"""A server whose environments are really built, of wheels that the test makes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import support
from releases.release_lab import ReleaseLab
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.environments.assembly import Environments
from torchyard.environments.types import Platform
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.scheduler import Scheduler


@pytest.fixture
def lab(tmp_path: Path, db: Database, clock: FakeClock) -> Iterator[ReleaseLab]:
    home, wheels = tmp_path / "home", tmp_path / "wheels"
    wheels.mkdir()
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
    home.mkdir()
    environments = Environments(home, db, clock, variables, Platform("linux", "x86_64", "cpu"))
    services = replace(support.make_services(home, db, clock), environments=environments)
    executor = FakeExecutor()
    scheduler = Scheduler(services, executor, "http://127.0.0.1:1")
    made = ReleaseLab(services, scheduler, clock, executor, wheels)
    yield made
    made.keeper.stop()
    scheduler.preparer.close()
