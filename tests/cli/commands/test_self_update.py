"""Which command upgrades torchyard, by what its installation left; running it is another test's."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from torchyard.base.errors import DiskFull, Forbidden, InvalidInput
from torchyard.cli.commands import self_update


@pytest.fixture(autouse=True)
def _programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("uv", "pipx"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    folder = tmp_path / "cache" / "environment"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("left", "installer", "words"),
    [
        ("uv-receipt.toml", "uv\n", ["uv", "tool", "upgrade", "torchyard"]),
        ("pipx_metadata.json", "pip\n", ["pipx", "upgrade", "torchyard"]),
        (".gitignore", "uv\n",
         ["uv", "pip", "install", "--python", sys.executable, "--upgrade", "torchyard"]),
        ("pyvenv.cfg", "pip\n",
         [Path(sys.executable).name, "-m", "pip", "install", "--upgrade", "torchyard"]),
    ],
)  # fmt: skip
def test_who_installed_it_upgrades_it(
    prefix: Path, left: str, installer: str, words: Sequence[str]
) -> None:
    (prefix / left).touch()
    program, *arguments = self_update.upgrade_command(prefix, installer, "")
    assert [Path(program).name, *arguments] == list(words)


def test_what_no_index_has_is_not_upgraded(prefix: Path) -> None:
    with pytest.raises(InvalidInput, match="from `file:///src`"):
        self_update.upgrade_command(prefix, "pip", json.dumps({"url": "file:///src"}))
    with pytest.raises(InvalidInput, match="nobody noted"):
        self_update.upgrade_command(prefix, "", "")
    (prefix.parent / "CACHEDIR.TAG").touch()
    with pytest.raises(InvalidInput, match="is in a cache"):
        self_update.upgrade_command(prefix, "uv", "")


def test_a_program_that_is_gone_is_named(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (prefix / "uv-receipt.toml").touch()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InvalidInput, match="`uv` installed torchyard, and is not on PATH"):
        self_update.upgrade_command(prefix, "uv", "")


def test_somebody_elses_installation_stays(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(Forbidden, match="you may not change"):
        self_update.upgrade_command(prefix, "pip", "")


@pytest.mark.parametrize(
    ("upgrade", "repair"),
    [
        ("uv tool upgrade torchyard", "uv tool upgrade --reinstall torchyard"),
        ("pipx upgrade torchyard", "pipx reinstall torchyard"),
        ("uv pip install --python p --upgrade torchyard",
         "uv pip install --python p --reinstall torchyard"),
        ("python -m pip install --upgrade torchyard",
         "python -m pip install --force-reinstall torchyard"),
    ],
)  # fmt: skip
def test_who_installed_it_repairs_it(upgrade: str, repair: str) -> None:
    assert list(self_update.repair_command(upgrade.split())) == repair.split()


def test_nothing_begins_where_it_would_run_out_of_space(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    self_update.check_room(prefix)
    monkeypatch.setattr(self_update, "_ROOM_BYTES", 1 << 60)
    with pytest.raises(DiskFull, match=f"MB are free in `{prefix}`"):
        self_update.check_room(prefix)
