"""The distribution that holds torchyard.train alone."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import textwrap
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import uv

from torchyard import __version__
from torchyard.environments.packages import layers

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

USE = """
    import sys, torchyard
    assert torchyard.__file__ is None, "a namespace package has no __init__.py"
    from torchyard.train import checkpoint
    import torch
    checkpoint.configure(sys.argv[1])
    checkpoint.save(3, {"a": torch.arange(5)}).wait(100)
    step, state = checkpoint.load()
    assert step == 3 and state["a"].tolist() == [0, 1, 2, 3, 4]
    there = {name.split(".")[0] for name in sys.modules}
    assert not there & {"pydantic", "sqlalchemy", "fastapi", "click"}, there
    print("it works")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [*_uv(), "build", "--quiet", "--wheel", "--out-dir", str(folder),
         str(ROOT / "packaging/train")],
        check=True, timeout=100,
    )  # fmt: skip
    (file,) = folder.glob("*.whl")
    return file


@pytest.mark.torch
def test_the_wheel_holds_the_files_of_the_full_package_and_no_others(wheel: Path) -> None:
    assert wheel.name == f"torchyard_train-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        contents = {
            name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name
        }
    files = (SOURCE / "torchyard/train").rglob("*.py")
    assert contents == {file.relative_to(SOURCE).as_posix(): file.read_bytes() for file in files}


@pytest.mark.torch
@pytest.mark.timeout(200)
def test_it_works_in_an_environment_without_the_server(wheel: Path, tmp_path: Path) -> None:
    site_packages = _environment_with_torch(tmp_path / "venv")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site_packages)
    _use(tmp_path)


@pytest.mark.torch
@pytest.mark.timeout(200)
def test_an_environment_that_lists_it_gets_it_from_the_server(tmp_path: Path) -> None:
    site_packages = _environment_with_torch(tmp_path / "venv")
    layers.put(["torchyard-train"], site_packages)
    _use(tmp_path)


def test_an_environment_that_lists_it_has_the_servers_version() -> None:
    remaining, names, notices = layers.split(["torch==2.13.0", "torchyard_train>=0.1"])
    assert (remaining, names) == (["torch==2.13.0"], ("torchyard-train",))
    assert notices == ["package `torchyard_train>=0.1` is of the version of this server"]
    assert layers.fingerprint(names)


def test_it_parses_on_the_oldest_python_of_its_metadata() -> None:
    import ast

    for file in (SOURCE / "torchyard/train").rglob("*.py"):
        ast.parse(file.read_text(), feature_version=(3, 10))


def _uv() -> list[str]:
    """With the package sources that pip has on this machine, where there is a pip."""
    if importlib.util.find_spec("pip") is None:
        return [uv.find_uv_bin()]
    return [sys.executable, str(ROOT / "tools/run_uv.py")]


def _use(folder: Path) -> None:
    completed = subprocess.run(
        [str(folder / "venv/bin/python"), "-I", "-c", textwrap.dedent(USE), str(folder / "c")],
        capture_output=True, text=True, timeout=150, cwd=folder,
    )  # fmt: skip
    assert completed.stdout.strip() == "it works", completed.stderr


def _environment_with_torch(folder: Path) -> Path:
    """A fresh one, with links to torch and what torch needs, and nothing else of this one."""
    venv.create(folder, symlinks=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    for name in _with_requirements("torch") | _with_requirements("numpy"):
        for file in distribution(name).files or ():
            target = site_packages / file.parts[0]
            if file.parts[0] != ".." and not target.exists():
                target.symlink_to(Path(str(distribution(name).locate_file(file.parts[0]))))
    return site_packages


def _with_requirements(name: str) -> set[str]:
    names: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        try:
            requirements = distribution(current).requires or []
        except PackageNotFoundError:
            continue  # for another system
        names.add(current)
        required = [
            re.split(r"[^\w.-]", line)[0] for line in requirements if "extra ==" not in line
        ]
        waiting += [requirement for requirement in required if requirement not in names]
    return names
