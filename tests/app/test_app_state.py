"""`app.state`: what routes read of it is there, and the way up leads through the hooks alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchyard
from torchyard.base.clock import FakeClock
from workspaces.served import Served, served

SOURCE = Path(torchyard.__file__).parent
_READS = re.compile(r"(?:from_state\(\"|\brequest\.app\.state\.)(\w+)")


@pytest.fixture
def site(tmp_path: Path, database_url: str, clock: FakeClock) -> Iterator[Served]:
    with served(tmp_path, database_url, clock) as made:
        yield made


def state_of(site: Served) -> dict[str, Any]:
    app: Any = site.client.app
    state: dict[str, Any] = app.state._state
    return state


def test_what_routes_read_is_there(site: Served) -> None:
    read = {name for path in SOURCE.rglob("*.py") for name in _READS.findall(path.read_text())}
    assert {"services", "hooks", "access", "sign_in"} <= read
    assert read - set(state_of(site)) == set()


def test_no_function_stands_beside_the_hooks(site: Served) -> None:
    assert [name for name, value in state_of(site).items() if callable(value)] == []
