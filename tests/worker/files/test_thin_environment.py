"""A thin environment on top of a shared one, both real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from environments import wheels
from torchyard.worker.files import thin_environment


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A relocatable venv with pip, a package with a command, and a .pth file."""
    from torchyard.environments.build.builder import _pip_wheel
    from torchyard.environments.packages.uv import find_uv

    folder = tmp_path_factory.mktemp("shared") / "env"
    wheel = wheels.put(folder.parent / "wheels", "alpha", "1.0", script="alpha-says")
    uv = [find_uv(), "--quiet", "--offline", "--cache-dir", str(folder.parent / "cache")]
    subprocess.run([*uv, "venv", "--relocatable", "-p", sys.executable, str(folder)], check=True)
    pip = _pip_wheel(folder)
    if pip is None:
        pytest.skip("this Python brings no pip wheel")
    into = ["pip", "install", "--python", str(folder / "bin" / "python"), "--no-deps"]
    subprocess.run([*uv, *into, str(wheel), str(pip)], check=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    (packages / "own.pth").write_text("import sys; sys.from_own_pth = True\n")
    (folder / "share" / "alpha").mkdir(parents=True)
    (folder / "share" / "alpha" / "data").write_text("data")
    (folder / "bin" / "native").symlink_to("/bin/true")
    return folder


def run(*command: str | Path, **settings: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, **settings)
    return str(done.stdout).strip()


def test_programs_run_in_the_thin_environment(shared: Path, tmp_path: Path) -> None:
    bin_folder = thin_environment.create(shared, tmp_path / "env")
    python = bin_folder / "python"
    assert bin_folder == tmp_path / "env" / "bin"
    assert run(python, "-c", "import sys; print(sys.executable, sys.prefix, sys.from_own_pth)") == (
        f"{python} {tmp_path / 'env'} True"
    )
    assert run(bin_folder / "alpha-says") == str(python)
    assert run(python, "-m", "alpha") == ""
    activate = f". {bin_folder}/activate; command -v python; command -v alpha-says"
    assert run("sh", "-c", activate).split() == [str(python), str(bin_folder / "alpha-says")]
    data = "import sys; print(open(sys.prefix + '/share/alpha/data').read())"
    assert run(python, "-c", data) == "data"
    run(bin_folder / "native")


def test_any_folder_name_works_in_any_locale(shared: Path, tmp_path: Path) -> None:
    moved = tmp_path / 'h\xe9 "q" $x\'y %s \udcff'
    moved.mkdir()
    (moved / "env").symlink_to(shared)
    bin_folder = thin_environment.create(moved / "env", moved / "thin")
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    for locale in (plain, {"LC_ALL": "C.UTF-8"}):
        words = [str(bin_folder / "python"), "-c", "import alpha, sys; print(sys.from_own_pth)"]
        assert run(*words, env=locale) == "True"


@pytest.mark.slow
def test_packages_installed_in_the_thin_environment_take_precedence_and_stay_there(
    shared: Path, tmp_path: Path
) -> None:
    bin_folder = thin_environment.create(shared, tmp_path / "env")
    newer = wheels.put(tmp_path, "alpha", "2.0", script="alpha-says")
    before = sorted(path for path in shared.rglob("*") if "__pycache__" not in str(path))
    pip = [str(bin_folder / "pip"), "--disable-pip-version-check", "install", "--no-index"]
    run(*pip, newer)
    code = "import alpha; print(alpha.__version__, alpha.__file__)"
    version, file = run(bin_folder / "python", "-c", code).split()
    assert version == "2.0" and file.startswith(str(tmp_path / "env"))
    assert run(shared / "bin" / "python", "-c", code).startswith("1.0")
    after = sorted(path for path in shared.rglob("*") if "__pycache__" not in str(path))
    assert after == before


def test_data_files_installed_in_the_thin_environment_stay_there(
    shared: Path, tmp_path: Path
) -> None:
    thin_environment.create(shared, tmp_path / "env")
    data_folder = tmp_path / "env" / "share" / "alpha"
    assert (data_folder / "data").read_text() == "data"
    (data_folder / "more").write_text("more")
    assert sorted(path.name for path in (shared / "share" / "alpha").iterdir()) == ["data"]


def test_a_folder_that_is_not_an_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not a Python environment"):
        thin_environment.create(tmp_path, tmp_path / "env")


_CREATE_BELOW_A_LIMIT = """
import errno, resource, sys
from pathlib import Path
from torchyard.worker.files import thin_environment
resource.setrlimit(resource.RLIMIT_FSIZE, (80_000, resource.RLIM_INFINITY))
try:
    thin_environment.create(*map(Path, sys.argv[1:]))
except OSError as error:
    assert error.errno == errno.EFBIG, error
    print("refused")
"""


def test_a_program_of_which_the_disk_takes_a_part_is_an_error(tmp_path: Path) -> None:
    """A file that may be no larger fails as a full disk does, after a part was written."""
    shared = tmp_path / "shared"
    (shared / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (shared / "bin").mkdir()
    (shared / "pyvenv.cfg").touch()
    (shared / "bin" / "torchrun").write_bytes(b"#!/usr/bin/python\n" + b"x" * 100_000)
    words: list[str | Path] = [
        sys.executable,
        "-c",
        _CREATE_BELOW_A_LIMIT,
        shared,
        tmp_path / "thin",
    ]
    assert run(*words) == "refused"
