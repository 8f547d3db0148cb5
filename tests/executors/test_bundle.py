"""The worker's zip, as a node sees it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import other_pythons
from torchyard.executors.bundle import worker_zip

# Modules that only run inside the user's Python, with packages that a worker has not.
_IN_RANK = "torchyard.worker.in_rank."
IMPORT = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
assert sys.modules["torchyard"].__file__.startswith(sys.argv[1])
print(len(sys.argv) - 2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", [other_pythons.WORKER, other_pythons.CURRENT])
def test_every_module_is_imported_by_the_oldest_python(version: str, tmp_path: Path) -> None:
    python = other_pythons.python(version)
    archive = worker_zip(tmp_path)
    with zipfile.ZipFile(archive) as opened:
        modules = sorted(
            name[: -len(".py")].replace("/", ".").replace(".__init__", "")
            for name in opened.namelist()
            if name.endswith(".py") and name != "__main__.py"
        )
    modules = [name for name in modules if not name.startswith(_IN_RANK + "rehearsal_")]
    assert "torchyard.worker.node.node" in modules
    ran = subprocess.run(
        [python, "-I", "-S", "-c", IMPORT, str(archive), *modules],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", f"{len(modules)}\n")


def test_our_own_python_needs_no_sources(tmp_path: Path) -> None:
    compiled = tmp_path / "compiled.zip"
    with zipfile.ZipFile(worker_zip(tmp_path)) as opened, zipfile.ZipFile(compiled, "w") as archive:
        for name in opened.namelist():
            if name.endswith(".pyc"):
                archive.writestr(name, opened.read(name))
    modules = ["torchyard.worker.node.node", "torchyard.shared.plan"]
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORT, str(compiled), *modules],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", "2\n")


def test_equal_sources_are_one_file(tmp_path: Path) -> None:
    archive = worker_zip(tmp_path)
    made_at = archive.stat().st_mtime_ns
    assert worker_zip(tmp_path) == archive
    assert archive.stat().st_mtime_ns == made_at
