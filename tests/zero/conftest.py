"""The environment that these tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zero import environment, ranks


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return environment.python(tmp_path_factory.mktemp("deepspeed"))


@pytest.fixture
def run(python: str, tmp_path: Path) -> Callable[..., list[Any]]:
    """What two ranks of a program answer."""

    def start(program: str, *arguments: str, count: int = 2, **variables: str) -> list[Any]:
        return ranks.run(python, program, tmp_path, *arguments, count=count, **variables)

    return start
