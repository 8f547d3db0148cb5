"""Fixtures of the worker's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.bench import Bench, bench_in
from worker.relays import MlflowStub


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_in(tmp_path) as made:
        yield made


@pytest.fixture
def server() -> Iterator[MlflowStub]:
    made = MlflowStub()
    made.start()
    yield made
    made.stop()
