"""Fixtures for the tests of MLflow's routes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mlflow.mlflow_server import Server, server_in


@pytest.fixture
def server(tmp_path: Path, database_url: str) -> Iterator[Server]:
    yield from server_in(tmp_path, database_url)
