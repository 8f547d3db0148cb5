"""As the tests of jobs have them, with one sweep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import support
from sweeps.running.sweep_lab import SweepLab
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.scheduler import Scheduler


@pytest.fixture
def lab(tmp_path: Path, db: Database, clock: FakeClock) -> Iterator[SweepLab]:
    services = support.make_services(tmp_path, db, clock)
    executor = FakeExecutor()
    scheduler = Scheduler(services, executor, "http://127.0.0.1:1")
    made = SweepLab(services, scheduler, clock, executor)
    yield made
    made.keeper.stop()
