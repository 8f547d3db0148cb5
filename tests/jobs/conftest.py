"""Fixtures for most tests of jobs; a file that needs other services makes its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import support
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    return support.make_services(tmp_path, db, clock)


@pytest.fixture
def executor() -> FakeExecutor:
    return FakeExecutor()


@pytest.fixture
def scheduler(services: Services, executor: FakeExecutor) -> Scheduler:
    return Scheduler(services, executor, "http://127.0.0.1:1")
