"""The command and the SDK on systems that are not Linux, as far as Linux can show it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import torchyard
from end_to_end.yard_under_test import Yard, running_yard

PROGRAM = Path(__file__).with_name("elsewhere.py")
SOURCE = Path(torchyard.__file__).parent


def _elsewhere(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if "TORCHYARD" not in name}
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        env={**environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_nothing_that_the_command_and_the_sdk_import_needs_linux() -> None:
    names = [
        ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for folder in ("cli", "client")
        for file in sorted((SOURCE / folder).rglob("*.py"))
        # Its library, an extra, imports by the system's name.
        if file.parent != SOURCE / "cli" / "mcp"
    ]
    assert len(names) > 100
    done = _elsewhere("--import", *names)
    assert done.returncode == 0, done.stderr


def test_a_server_of_ones_own_is_refused_with_what_to_do(tmp_path: Path) -> None:
    done = _elsewhere("job", "list", TORCHYARD_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "torchyard's server runs on Linux alone" in done.stderr
    assert "yard login URL" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    with running_yard("elsewhere") as made:
        yield made


@pytest.mark.end_to_end
def test_a_job_goes_from_there_to_a_server_and_back(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "run.py").write_text("open('outputs/made.txt', 'w').write('made')\n")
    (tmp_path / "job.yml").write_text(
        "{name: far, command: mkdir outputs; python run.py, code: src, environment: python}"
    )
    home = tmp_path / "home"
    server = {
        "TORCHYARD_HOME": str(home),
        "TORCHYARD_URL": yard.url,
        "TORCHYARD_TOKEN": yard.token,
    }
    for arguments in (
        ("job", "create", "-f", str(tmp_path / "job.yml"), "--stream"),
        ("job", "download", "-n", "far", "--all", "-p", str(tmp_path / "got")),
        ("job", "list"),
        ("whoami",),
    ):
        done = _elsewhere(*arguments, **server)
        assert done.returncode == 0, done.stderr
    assert [file.read_text() for file in (tmp_path / "got").rglob("made.txt")] == ["made"]
