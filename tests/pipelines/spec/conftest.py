"""As the tests of jobs have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import support
from pipelines.spec.pipeline_lab import PipelineLab
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database


@pytest.fixture
def lab(tmp_path: Path, db: Database, clock: FakeClock) -> PipelineLab:
    return PipelineLab(support.make_services(tmp_path, db, clock))
