"""A fake server, and `yard` called in this process as the shell calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.fake_server import TOKEN, FakeServer
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


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeServer]:
    fake = FakeServer()
    monkeypatch.setenv("TORCHYARD_URL", fake.url)
    monkeypatch.setenv("TORCHYARD_TOKEN", TOKEN)
    yield fake
    fake.stop()


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
