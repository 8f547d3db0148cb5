"""A Python environment with a framework, which has the tests' torch as well."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest
import uv

_ROOT = Path(__file__).resolve().parents[3]


def create(folder: Path, *arguments: str, variables: Mapping[str, str]) -> Path:
    """Install packages by `uv pip install` into a new environment; return its site-packages.

    Skips the test where they can't be installed.
    """
    venv.create(folder, symlinks=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    has_pip = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True)
    program = [sys.executable, str(_ROOT / "tools/run_uv.py")]
    done = subprocess.run(
        [*(program if has_pip.returncode == 0 else [uv.find_uv_bin()]),
         "pip", "install", "--quiet", "--python", python(folder), "--link-mode=copy", *arguments],
        capture_output=True, text=True, timeout=300, env={**os.environ, **variables},
    )  # fmt: skip
    if done.returncode != 0 and os.environ.get("TORCHYARD_TEST_SERVICES") != "required":
        pytest.skip(f"{arguments[-1]} can't be installed: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return site_packages


def python(folder: Path) -> str:
    return str(folder / "bin/python")
