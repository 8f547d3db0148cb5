"""As the tests of jobs have them, with one pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import support
from pipelines.running.pipeline_lab import PipelineLab
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.scheduler import Scheduler


@pytest.fixture
def lab(tmp_path: Path, db: Database, clock: FakeClock) -> Iterator[PipelineLab]:
    services = support.make_services(tmp_path, db, clock)
    executor = FakeExecutor()
    scheduler = Scheduler(services, executor, "http://127.0.0.1:1")
    made = PipelineLab(services, scheduler, clock, executor)
    yield made
    made.keeper.stop()
