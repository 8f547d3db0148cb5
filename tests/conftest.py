"""What every test may use: a database with the schema, a clock that stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.base.clock import FakeClock
from torchyard.base.db import Database


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path / 'test.db'}")
    made.upgrade()
    yield made
    made.close()
