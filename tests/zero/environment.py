"""An environment with torch 2.13, DeepSpeed and fairscale, for tests that start programs in it.

Owns: what is in it, and that it is made once where TORCHYARD_TEST_DEEPSPEED names a folder.
Leaves: starting programs to ranks.
Always: a folder without its mark is made again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_FIRST = ["torch==2.13.0", "numpy>=2.1", "setuptools>=75,<82", "wheel", "scikit-learn==1.9.1"]
# Their sources are built here, against the torch above.
_THEN = ["deepspeed==0.19.8", "fairscale==0.4.13"]
_MARK = "made-of"
# Its transport over shared memory, which the first start of it would compile for a minute.
_WITHOUT_TRANSPORT = """
_probed = _probe_compatible_ops


def _probe_compatible_ops():
    return {**_probed(), "deepspeed_shm_comm": False}
"""


def python(scratch: Path) -> str:
    """Its Python; skipped, or failed where it is required, if it can't be installed."""
    kept_folder = os.environ.get("TORCHYARD_TEST_DEEPSPEED")
    folder = Path(kept_folder) if kept_folder else scratch / "venv"
    made = folder / "bin/python"
    content = "\n".join([*_FIRST, *_THEN])
    mark = folder / _MARK
    if mark.exists() and mark.read_text() == content:
        return str(made)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, symlinks=True)
    for names in (_FIRST, [*_THEN, "--no-build-isolation"]):
        done = subprocess.run(
            [sys.executable, str(_ROOT / "tools/run_uv.py"), "pip", "install", "--quiet",
             "--python", str(made), "--compile-bytecode", *names],
            capture_output=True, text=True, env={**os.environ, "DS_BUILD_OPS": "0"},
        )  # fmt: skip
        if done.returncode and os.environ.get("TORCHYARD_TEST_SERVICES") != "required":
            pytest.skip(f"DeepSpeed can't be installed: {done.stderr}")
        assert done.returncode == 0, done.stderr
    (packages,) = folder.glob("lib/python*/site-packages")
    with open(packages / "deepspeed/ops/__init__.py", "a") as file:
        file.write(_WITHOUT_TRANSPORT)
    mark.write_text(content)
    return str(made)
