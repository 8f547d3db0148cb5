"""`yard init` writes a project whole, and replaces nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.cli.commands.init import init

FILES = ["README.md", "job.schema.json", "job.yml", "requirements.txt", "src/train.py"]


def files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_a_project_is_written_whole(tmp_path: Path) -> None:
    done = CliRunner().invoke(init, [str(tmp_path / "a/b")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert files(tmp_path / "a/b") == FILES
    text = (tmp_path / "a/b/job.yml").read_text()
    assert text.startswith("# yaml-language-server: $schema=job.schema.json\n")
    assert yaml.safe_load(text)["resources"] == {"instance_count": 2}


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(Conflict):
        CliRunner().invoke(init, [str(tmp_path)], catch_exceptions=False)
    assert files(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_what_can_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "src").write_text("a file where a folder is needed")
    with pytest.raises(InvalidInput):
        CliRunner().invoke(init, [str(tmp_path)], catch_exceptions=False)
    assert files(tmp_path) == ["src"]
