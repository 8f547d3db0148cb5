"""A router of a home of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from endpoints.router.router_process import RouterProcess


@pytest.fixture
def router(tmp_path: Path) -> Iterator[RouterProcess]:
    """Running, with an empty table."""
    process = RouterProcess(tmp_path / "home")
    process.start()
    yield process
    process.close()
