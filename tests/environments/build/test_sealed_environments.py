"""A job's changes to a shared environment never reach another job."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from environments import builders, wheels
from environments.conftest import Machine
from torchyard.environments.assembly import Environments
from torchyard.environments.build import sealed
from torchyard.environments.images import image_folder


@pytest.mark.slow
def test_a_built_environment_has_no_write_bits_and_can_be_removed(
    environments: Environments, machine: Machine
) -> None:
    wheels.put(machine.wheels, "alpha", "1.0", script="alpha-says")
    spec = environments.resolver.resolve({"pip_requirements": ["alpha"]})
    folder = environments.builds.run(spec)
    for path in [folder, *folder.rglob("*")]:
        assert path.is_symlink() or not path.stat().st_mode & 0o222, path
    assert environments.builds.use(spec) == folder
    assert environments.folders.remove(spec.hash, lambda _: False)
    assert environments.folders.find(spec) is None and not list(
        (machine.home / "environments").glob(".rem*")
    )
    assert environments.builds.run(spec) == folder


def test_the_mark_changes_with_written_files_and_not_with_compiled_ones(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "environment"
    (folder / "lib" / "__pycache__").mkdir(parents=True)
    module = folder / "lib" / "module.py"
    module.write_text("A = 1\n")
    before = sealed.close(folder)
    assert sealed.mark(folder) == before
    _write(folder / "lib" / "__pycache__" / "module.pyc", "x")
    assert sealed.mark(folder) == before
    _write(module, "A = 2\n")
    assert sealed.mark(folder) != before
    other = tmp_path / "other"
    other.mkdir()
    (other / "here").touch()
    sealed.exchange(other, folder)
    assert (folder / "here").exists() and (other / "lib" / "module.py").exists()


def _write(file: Path, text: str) -> None:
    os.chmod(file.parent, 0o755)
    if file.exists():
        os.chmod(file, 0o644)
    with open(file, "a", encoding="utf-8") as stream:
        stream.write(text)


# With the standard library only, so that it runs with any Python.
_AS_ANYBODY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import sealed
folder = Path(sys.argv[1])
sealed.close(folder)
for act in (
    lambda: open(folder / "lib" / "module.py", "a"),
    lambda: open(folder / "lib" / "new.py", "w"),
    lambda: (folder / "lib" / "module.py").unlink(),
):
    try:
        act()
    except PermissionError:
        print("refused")
other = folder.with_name("other")
other.mkdir()
sealed.exchange(other, folder)
print(sorted(path.name for path in other.iterdir()))
"""


def test_write_bits_stop_an_ordinary_user() -> None:
    as_nobody: dict[str, object] = {}
    if os.geteuid() == 0:
        as_nobody = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o777)
        module = Path(top, "environment", "lib", "module.py")
        module.parent.mkdir(parents=True)
        module.write_text("A = 1\n")
        shutil.copy(Path(sealed.__file__), top)
        if os.geteuid() == 0:
            for path in (module, module.parent, module.parent.parent):
                shutil.chown(path, "nobody")
        words = ["-c", _AS_ANYBODY, str(module.parent.parent), top]
        for python in (sys.executable, "/usr/bin/python3"):
            try:
                done = subprocess.run(
                    [python, *words], cwd="/", capture_output=True, text=True, **as_nobody
                )  # type: ignore[call-overload]
            except OSError:
                continue
            if "Permission denied" not in done.stderr.partition("\n")[0]:
                break
        else:
            pytest.skip("user `nobody` has no Python on this machine")
        assert done.stdout.split("\n")[:4] == ["refused"] * 3 + ["['lib']"], done
        image_folder.remove(Path(top, "other"))
        assert not Path(top, "other").exists()


_USE = """
folder = environments.builds.run(spec)
from pathlib import Path
module = next(folder.glob("lib/python3*/site-packages/alpha/__init__.py"))
text = module.read_text()
with open(module, "a") as stream:
    stream.write("EDITED = 1\\n")
(module.parent / "more.py").write_text("")
assert environments.builds.use(spec) == folder
assert module.read_text() == text, "the edit is still there"
assert not (module.parent / "more.py").exists()
assert not module.stat().st_mode & 0o222
other_spec = environments.resolver.resolve({"pip_requirements": ["alpha", "beta"]})
other = environments.builds.run(other_spec)
found = next(other.glob("lib/python3*/site-packages/alpha/__init__.py"))
assert found.read_text() == text, "the edit came by the cache"
assert stat.S_IMODE(folder.stat().st_mode) == 0o555
assert not list(folder.parent.glob(".building-*"))
print("is open:", environments.folders.is_writable_by_jobs)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes where no write bits are")
def test_without_mounts_an_edit_by_root_is_repaired_before_the_next_use(
    machine: Machine, environments: Environments
) -> None:
    """As in most containers; the fixture `environments` is used for its database."""
    wheels.put(machine.wheels, "alpha", "1.0")
    wheels.put(machine.wheels, "beta", "1.0")
    process = builders.start(
        machine.home,
        machine.database,
        machine.variables,
        "alpha",
        then="import stat\n" + _USE,
        may_mount=False,
    )
    out, err = process.communicate(timeout=100)
    assert out.strip() == "is open: True", err
    assert stat.S_IMODE((machine.home / "environments").stat().st_mode) & 0o200
