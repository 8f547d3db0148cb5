"""An environment with DeepSpeed, for tests that start a script of it.

DeepSpeed 0.18 is the last that has a block for Nebula of its own. Operators are not built: on a CPU
it needs none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import uv

_ROOT = Path(__file__).resolve().parents[3]
WITH_NEBULA, NEWEST = "0.18.8", "0.19.8"
# What it imports beside torch and what the tests have anyway.
_PACKAGES = ["einops", "hjson", "msgpack", "ninja", "psutil", "py-cpuinfo", "tqdm"]
# Its transport over shared memory, which its first start would compile for a minute.
_WITHOUT_TRANSPORT = """
_probed = _probe_compatible_ops


def _probe_compatible_ops():
    return {**_probed(), "deepspeed_shm_comm": False}
"""


def python(folder: Path, version: str = WITH_NEBULA) -> str:
    """The Python of a new environment, which has the tests' torch as well."""
    venv.create(folder, symlinks=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    made = str(folder / "bin/python")
    has_pip = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True)
    program = [sys.executable, str(_ROOT / "tools/run_uv.py")]
    done = subprocess.run(
        [*(program if has_pip.returncode == 0 else [uv.find_uv_bin()]),
         "pip", "install", "--quiet", "--python", made, "--link-mode=copy", "--no-deps",
         f"deepspeed=={version}", *_PACKAGES],
        capture_output=True, text=True, timeout=300, env={**os.environ, "DS_BUILD_OPS": "0"},
    )  # fmt: skip
    if done.returncode != 0 and os.environ.get("TORCHYARD_TEST_SERVICES") != "required":
        pytest.skip(f"DeepSpeed can't be installed: {done.stderr}")
    assert done.returncode == 0, done.stderr
    if version == WITH_NEBULA:
        with open(site_packages / "deepspeed/git_version_info.py", "a") as file:
            file.write('\ncompatible_ops["deepspeed_shm_comm"] = False\n')
    else:
        with open(site_packages / "deepspeed/ops/__init__.py", "a") as file:
            file.write(_WITHOUT_TRANSPORT)
    return made
