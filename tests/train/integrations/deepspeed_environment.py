"""An environment with DeepSpeed, for tests that start a script of it.

DeepSpeed 0.18 is the last that has a block for Nebula of its own. Operators are not built: on a CPU
it needs none.
"""

from __future__ import annotations

from pathlib import Path

from train.integrations import environment

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
    site_packages = environment.create(
        folder, "--no-deps", *_PACKAGES, f"deepspeed=={version}", variables={"DS_BUILD_OPS": "0"}
    )
    if version == WITH_NEBULA:
        with open(site_packages / "deepspeed/git_version_info.py", "a") as file:
            file.write('\ncompatible_ops["deepspeed_shm_comm"] = False\n')
    else:
        with open(site_packages / "deepspeed/ops/__init__.py", "a") as file:
            file.write(_WITHOUT_TRANSPORT)
    return environment.python(folder)
