"""Build the environments of tests/locks, and Ray's, so that no test downloads them.

.venv/bin/python tools/build_test_environments.py

Owns: building them before the tests, each tried again after a failure.
Leaves: what is in them to tests/locks; putting them into a test's home to
tests/end_to_end/shared_torch.py.
Always: one that is there already costs nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))

import retry  # noqa: E402
from end_to_end.shared_torch import LOCKS, OVERRIDES, SharedTorch  # noqa: E402
from torchyard.base.errors import TorchyardError  # noqa: E402
from torchyard.base.home.uv import find_uv  # noqa: E402
from torchyard.executors.ray.ray_environment import RayEnvironments, RayVersion  # noqa: E402


def main() -> int:
    folder = Path(os.environ.get("TORCHYARD_TEST_ENVIRONMENTS") or ROOT / ".test-environments")
    shared = SharedTorch(folder)
    locks = sorted(set(LOCKS.glob("*.txt")).difference(OVERRIDES.values()))
    codes = [
        build(str(file.relative_to(ROOT)), partial(shared.build, file))
        for file in (*OVERRIDES, *locks)
    ]
    ray_home = Path(os.environ.get("TORCHYARD_TEST_RAY_HOME") or ROOT / ".test-ray").absolute()
    ray = RayEnvironments(ray_home, find_uv(), os.environ)
    return max(*codes, build("Ray", partial(ray.get, RayVersion())))


def build(name: str, environment: Callable[[], object]) -> int:
    """Build one; return an exit code. A failure that may pass is tried again, as by retry.py."""
    for pause_s in (*retry.PAUSES_S, None):
        started = time.monotonic()
        try:
            environment()
        except TorchyardError as error:
            print(f"error: {name} was not built: {error}", file=sys.stderr, flush=True)
            if pause_s is not None:
                time.sleep(pause_s)
            continue
        seconds = time.monotonic() - started
        if seconds > 1:
            print(f"built the environment of {name} in {seconds:.0f} s", flush=True)
        return 0
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
