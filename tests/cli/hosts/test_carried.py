"""The agent's zip, as a host sees it."""

from __future__ import annotations

import io
import platform
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import other_pythons
from torchyard.base.errors import BuildFailed
from torchyard.base.home.ray_archive import RayArchives
from torchyard.cli.hosts import carried, joining
from torchyard.executors.ray import node_labels
from torchyard.node_agent import carried_ray

_IMPORT = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
own = sorted(name for name in sys.modules if name.split(".")[0] == "torchyard")
assert all(sys.modules[name].__file__.startswith(sys.argv[1]) for name in own)
print(" ".join(own))
"""


@pytest.mark.parametrize("version", [other_pythons.WORKER, other_pythons.CURRENT])
def test_the_agent_imports_what_is_in_the_zip_and_no_package(version: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.pyz"
    file.write_bytes(carried.agent_zip())
    modules = sorted(
        "torchyard." + name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for name in carried.FILES
        if name != "__init__.py"
    )
    ran = subprocess.run(
        [other_pythons.python(version), "-I", "-S", "-c", _IMPORT, str(file), *modules],
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == ["torchyard", *modules]


def test_equal_sources_are_equal_zips() -> None:
    first = carried.agent_zip()
    carried.agent_zip.cache_clear()
    assert carried.agent_zip() == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert archive.testzip() is None


def test_what_this_machine_has_can_be_carried(tmp_path: Path) -> None:
    program = carried.uv_program()
    assert program is not None and program.read_bytes().startswith(b"\x7fELF")
    assert carried.own_system() == f"{platform.system()} {platform.machine()}"


@pytest.fixture
def archives(tmp_path: Path) -> Iterator[RayArchives]:
    with RayArchives(tmp_path / "here") as made:
        yield made


def environment_in(home: Path, base: Path) -> Path:
    folder = home / "engines" / "ray-2.60.0-py3.11.7"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(base / "bin" / "python3.11")
    (folder / "bin" / "ray").write_text(f"#!{folder}/bin/python\nprint('ray')\n")
    (folder / "pyvenv.cfg").write_text(f"home = {base}/bin\nversion_info = 3.11.7\n")
    return folder


def python_in(base: Path) -> Path:
    library = base / "lib" / "python3.11"
    for name in ("json", "test", "site-packages/torch"):
        (library / name).mkdir(parents=True)
        (library / name / "file.py").touch()
    (base / "bin").mkdir()
    (base / "bin" / "pip").touch()
    program = base / "bin" / "python3.11"
    program.write_text('#!/bin/sh\necho "$*" > "$(dirname "$0")/ran"\n')
    program.chmod(0o755)
    return base


def test_an_archive_of_ray_is_unpacked_with_its_python(
    tmp_path: Path, archives: RayArchives
) -> None:
    folder = environment_in(tmp_path / "here", python_in(tmp_path / "python"))
    assert archives.get("2.60.0", "3.11.7") is None  # it is not complete
    (folder / "torchyard-complete").touch()
    archive = archives.get("2.60.0", "3.11.7")
    assert archive is not None and archives.get("2.60.0", "3.11.7") == archive
    assert archives.get("2.59.0", "3.11.7") is None

    engines = tmp_path / "there" / "engines"
    (engines / ".arrived").mkdir(parents=True)
    arrived = engines / ".arrived" / "archive"
    arrived.write_bytes(archive.read_bytes())
    carried_ray.unpack(arrived, engines, "2.60.0", "3.11.7")
    made, base = engines / "ray-2.60.0-py3.11.7", engines / "python-3.11.7"
    assert (made / "bin" / "ray").read_text() == f"#!{made}/bin/python\nprint('ray')\n"
    assert f"home = {base}/bin" in (made / "pyvenv.cfg").read_text()
    assert (made / "bin" / "python").resolve() == base / "bin" / "python3.11"
    assert (made / "bin" / "ran").read_text() == "-c import ctypes, ssl, ray\n"
    assert (made / "torchyard-complete").exists()
    names = {file.relative_to(base).as_posix() for file in base.rglob("*") if file.is_file()}
    assert names == {"bin/python3.11", "lib/python3.11/json/file.py"}


def test_a_python_that_does_not_run_there_is_not_complete(
    tmp_path: Path, archives: RayArchives
) -> None:
    base = python_in(tmp_path / "python")
    (base / "bin" / "python3.11").write_text("#!/bin/sh\necho 'no libc' >&2; exit 1\n")
    folder = environment_in(tmp_path / "here", base)
    (folder / "torchyard-complete").touch()
    file = archives.get("2.60.0", "3.11.7")
    assert file is not None
    engines = tmp_path / "engines"
    (engines / ".arrived").mkdir(parents=True)
    shutil.copy(file, engines / ".arrived" / "archive")
    with pytest.raises(BuildFailed, match="does not run there: no libc") as failed:
        carried_ray.unpack(engines / ".arrived" / "archive", engines, "2.60.0", "3.11.7")
    assert "UV_DEFAULT_INDEX" in failed.value.hint
    # A stamp that came along counts for nothing.
    assert not (engines / folder.name / "torchyard-complete").exists()


def test_ray_names_machines_as_joining_looks_for_them() -> None:
    assert joining._LABEL == node_labels.MACHINE
