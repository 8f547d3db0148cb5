"""Builds in separate processes, which a test may kill."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
# `<this> <home> <database> <requirement>…`
_BUILD = """
import os, sys
from pathlib import Path
from torchyard.base.clock import SystemClock
from torchyard.base.db import Database
from torchyard.environments.assembly import Environments
from torchyard.environments.types import Platform
home, database = Path(sys.argv[1]), Database(sys.argv[2])
environments = Environments(
    home, database, SystemClock(), dict(os.environ), Platform("linux", "x86_64", "cpu")
)
spec = environments.resolver.resolve({"pip_requirements": sys.argv[3:]})
"""


def start(
    home: Path,
    database: str,
    variables: Mapping[str, str],
    *requirements: str,
    then: str = "print(environments.builds.run(spec))",
    may_mount: bool = True,
) -> subprocess.Popen[str]:
    """Start a build, or run the code `then` with `environments` and `spec`.

    Args:
        may_mount: False drops root's capability to mount, as most containers do.
    """
    drop: Callable[[], None] | None = None if may_mount else _drop_mounting
    return subprocess.Popen(
        [sys.executable, "-c", _BUILD + then, str(home), database, *requirements],
        env={**os.environ, **variables, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=drop,
        start_new_session=True,
    )


def _drop_mounting() -> None:
    """Drop CAP_SYS_ADMIN from the bounding set: the next exec does not have it."""
    import ctypes

    ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)
