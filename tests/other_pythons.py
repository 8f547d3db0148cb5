"""Other Pythons on this machine, for what has to run under them.

Owns: finding them: pyenv's, uv's, those on PATH.
Leaves: which version a test needs to the test.
Always: a version that is not here skips its test. Where TORCHYARD_TEST_SERVICES is `required`, uv
is asked to install it first; one that uv does not offer, or can't download, could not have been
had, and skips all the same.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

IN_RANK = "3.6"
"""The oldest that user code may run under."""
REHEARSAL = "3.8"
"""The oldest in which a rehearsal changes torch."""
WORKER = "3.9"
"""The oldest that runs the worker and the program of a local run."""
CURRENT = f"{sys.version_info[0]}.{sys.version_info[1]}"
VERSIONS = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
_INSTALL_LIMIT_S = 180
_REQUIRED = os.environ.get("TORCHYARD_TEST_SERVICES") == "required"


def python(version: str) -> str:
    """The path of a Python of this version, `3.9` for example; skips the test without one."""
    path = find(version) or (_installed_by_uv(version) if _REQUIRED else None)
    if path is None:
        pytest.skip(f"no Python {version} here")
    return path


@functools.cache
def find(version: str) -> str | None:
    """The path of a Python of this version; None if the machine has none."""
    return next((path for path in _candidates(version) if _runs(path, version)), None)


def _candidates(version: str) -> Iterator[str]:
    if version == CURRENT:
        yield sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    managed = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    yield from map(str, sorted(managed.glob(f"cpython-{version}.*/bin/python{version}")))
    for folder in os.get_exec_path():
        if os.access(os.path.join(folder, f"python{version}"), os.X_OK):
            yield os.path.join(folder, f"python{version}")


def _runs(path: str, version: str) -> bool:
    """A shim of pyenv is there for versions, too, that it would not run."""
    print_version = "import sys; print('%d.%d' % sys.version_info[:2])"
    ran = subprocess.run(
        [path, "-I", "-c", print_version],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return ran.returncode == 0 and ran.stdout.strip() == version


@functools.cache
def _installed_by_uv(version: str) -> str | None:
    uv = shutil.which("uv") or shutil.which("uv", path=os.path.dirname(sys.executable))
    if uv is None:
        return None
    try:
        install = [uv, "python", "install", "--quiet", "--no-bin", version]
        subprocess.run(install, timeout=_INSTALL_LIMIT_S, check=True, capture_output=True)
        find = [uv, "python", "find", "--managed-python", version]
        ran = subprocess.run(find, check=True, capture_output=True, text=True)
    except (OSError, subprocess.SubprocessError):
        return None
    path = ran.stdout.strip()
    assert _runs(path, version), f"uv has installed Python {version}, which does not run"
    return path
