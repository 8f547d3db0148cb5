"""An environment with DeepSpeed, for tests that start a script of it.

DeepSpeed 0.18 is the last that has a block for Nebula. Its operators are not built: on a CPU it
needs none.
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
# What it imports beside torch and what the tests have anyway.
_PACKAGES = [
    "deepspeed==0.18.8", "einops", "hjson", "msgpack", "ninja", "psutil", "py-cpuinfo", "tqdm",
]  # fmt: skip


def python(folder: Path) -> str:
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
         *_PACKAGES],
        capture_output=True, text=True, timeout=300, env={**os.environ, "DS_BUILD_OPS": "0"},
    )  # fmt: skip
    if done.returncode != 0 and os.environ.get("TORCHYARD_TEST_SERVICES") != "required":
        pytest.skip(f"DeepSpeed can't be installed: {done.stderr}")
    assert done.returncode == 0, done.stderr
    with open(site_packages / "deepspeed/git_version_info.py", "a") as file:
        # As without a compiler: else its first start compiles this for a minute.
        file.write('\ncompatible_ops["deepspeed_shm_comm"] = False\n')
    return made
