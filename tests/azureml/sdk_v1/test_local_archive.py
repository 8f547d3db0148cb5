"""What SDK v1 unpacks for a local run holds its program, and what that needs."""

from __future__ import annotations

import io
import subprocess
import zipfile
from pathlib import Path

import pytest

import other_pythons
from torchyard.azureml.sdk_v1 import local_archive
from torchyard.worker.files import thin_environment

IMPORT = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    content = local_archive.content(tmp_path, {"script": "train.py"})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(tmp_path)
    return tmp_path / local_archive.FOLDER / "local_run.pyz"


def _names(program: Path) -> list[str]:
    with zipfile.ZipFile(program) as archive:
        return archive.namelist()


@pytest.mark.slow
def test_every_module_in_it_finds_what_it_imports(program: Path) -> None:
    python = other_pythons.python(other_pythons.WORKER)
    modules = [
        name[: -len(".py")].replace("/", ".").replace(".__init__", "")
        for name in _names(program)
        if name != "__main__.py" and "/rehearsal_" not in name
    ]
    assert "torchyard.local_program.program" in modules
    ran = subprocess.run(
        [python, "-I", "-S", "-c", IMPORT, str(program), *modules],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_it_brings_the_hooks_of_the_scripts_environment(program: Path) -> None:
    names = _names(program)
    for file in thin_environment._HOOK_FILES.values():
        assert f"torchyard/worker/in_rank/{file}" in names


def test_it_holds_neither_the_relay_nor_the_server(program: Path) -> None:
    others = ("torchyard/worker/relay/", "torchyard/worker/node/", "torchyard/base/")
    assert not [name for name in _names(program) if name.startswith(others)]
