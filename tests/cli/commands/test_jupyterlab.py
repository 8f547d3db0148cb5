"""`yard jupyterlab`: where it finds the widget's front end, what it puts where."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path

import pytest

from cli.conftest import Yard
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.cli.commands import jupyterlab

PLUGIN = b'define(["@jupyter-widgets/base"], base => ({default: {}}))'


def packages(folder: Path, plugin: str = "package/dist/plugin.js") -> Path:
    """A folder of packages with one that is laid out as azureml-widgets."""
    widgets = folder / "azureml" / "widgets"
    archive = widgets / "static" / "packages" / "labextension" / "azureml_widgets-1.1.0.tgz"
    archive.parent.mkdir(parents=True)
    (widgets / "__init__.py").write_text("raise SystemExit('it is not to be imported')")
    with tarfile.open(archive, "w:gz") as opened:
        member = tarfile.TarInfo(plugin)
        member.size = len(PLUGIN)
        opened.addfile(member, io.BytesIO(PLUGIN))
    return archive


@pytest.fixture
def with_widgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive that this Python finds; `--user` writes below `tmp_path`."""
    archive = packages(tmp_path / "packages")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    return archive


def test_it_makes_a_prebuilt_extension(with_widgets: Path, tmp_path: Path, yard: Yard) -> None:
    answer = yard("jupyterlab", "--python", sys.executable, "--user")
    assert answer.code == 0 and "1.1.0" in answer.text, answer
    folder = tmp_path / "jupyter" / "labextensions" / "azureml_widgets"
    described = json.loads((folder / "package.json").read_text())
    load = described["jupyterlab"]["_build"]["load"]
    assert "_JUPYTERLAB.azureml_widgets" in (folder / load).read_text()
    assert (folder / "static" / "plugin.js").read_bytes() == PLUGIN
    again = yard("jupyterlab", "--python", sys.executable, "--user")
    assert again.code == 0, again
    assert len(list((folder / "static").iterdir())) == 2
    assert yard("jupyterlab", "--python", sys.executable, "--user", "--remove").code == 0
    assert not folder.exists()
    removal = yard("jupyterlab", "--python", sys.executable, "--user", "--remove")
    assert removal.code == 0 and "does not exist" in removal.text


def test_it_belongs_to_the_python_that_has_it(with_widgets: Path) -> None:
    python = jupyterlab._probe_python(sys.executable)
    assert jupyterlab.front_end(python) == with_widgets
    folder = jupyterlab._folder(python.data, False, {})
    assert folder == Path(sys.prefix) / "share/jupyter/labextensions/azureml_widgets"


def test_a_python_without_it(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="has no azureml-widgets"):
        jupyterlab.front_end(jupyterlab.JupyterPython(tmp_path, None))
    with pytest.raises(NotFound, match="has no front end"):
        jupyterlab.front_end(jupyterlab.JupyterPython(tmp_path, tmp_path))


def test_an_archive_of_another_layout(tmp_path: Path) -> None:
    archive = packages(tmp_path, plugin="package/lib/other.js")
    with pytest.raises(InvalidInput, match="contains no `package"):
        jupyterlab.install(archive, tmp_path / "extension")
    assert not (tmp_path / "extension").exists()


@pytest.mark.parametrize(
    ("python", "words"),
    [("/nope", "the Python `/nope` was not found"), ("true", "does not report")],
)
def test_a_program_that_is_not_a_python_is_refused(yard: Yard, python: str, words: str) -> None:
    answer = yard("jupyterlab", "--python", python)
    assert answer.code != 0 and words in answer.err, answer


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    archive = packages(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="can't be written"):
        jupyterlab.install(archive, tmp_path / "file" / "azureml_widgets")
