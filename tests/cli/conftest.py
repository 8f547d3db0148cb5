"""The real server, and `yard` called in this process as the shell calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest

from cli.real_server import RealServer
from cli.served_workspace import ServedWorkspace, count_as_built
from torchyard.base.clock import FakeClock
from torchyard.cli.parsing.group import run


@dataclass(frozen=True)
class Answer:
    """The exit code and output of a command."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


Yard = Callable[..., Answer]


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One for the tests of a file, each in a workspace of its own; its `python` counts as built.

    Its time begins with 2026 and passes when a test says so.
    """
    made = RealServer(
        tmp_path_factory.mktemp("server"),
        clock=FakeClock(datetime(2026, 1, 1, 10, tzinfo=timezone.utc)),
    )
    count_as_built(made.services, "python")
    yield made
    made.stop()


@pytest.fixture
def server(shared_server: RealServer, monkeypatch: pytest.MonkeyPatch) -> ServedWorkspace:
    """A new workspace, in which `yard` is."""
    made = ServedWorkspace(shared_server)
    monkeypatch.setenv("TORCHYARD_URL", made.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", made.token)
    monkeypatch.setenv("TORCHYARD_WORKSPACE", made.name)
    return made


@pytest.fixture
def yard(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> Yard:
    """Run `yard` with these arguments, in an empty folder, with a home of its own."""
    monkeypatch.setenv("TORCHYARD_HOME", str(tmp_path / "home"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def call(*arguments: object) -> Answer:
        capfdbinary.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return Answer(code, out, err.decode())

    return call
