"""The environments that the corpus is run in: torch as the tests pin it, built once.

Owns: which environment stands for each of `fault.ENVIRONMENTS`.
Leaves: building to end_to_end.shared_torch, the home folder to scratch_home.py, running to the
launchers' modules.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from causes import torchrun_runs, torchyard_jobs
from causes.fault import Fault
from causes.score import Answer
from causes.scratch_home import scratch_home
from end_to_end.shared_torch import SharedTorch

_SHARED = Path(os.environ.get("TORCHYARD_TEST_ENVIRONMENTS") or ".test-environments")


def run(launcher: str, faults: Sequence[Fault], tell: Callable[[Answer], None]) -> list[Answer]:
    shared = SharedTorch(_SHARED.resolve())
    if launcher == "torchrun":
        return torchrun_runs.run(faults, shared.build() / "bin" / "python", tell)
    with scratch_home() as home:
        environments: dict[str, Any] = dict.fromkeys(("python", "mpi"), "python")
        needed = {fault.environment for fault in faults} - set(environments)
        if needed:
            environments |= dict.fromkeys(needed, shared.lend(home))
        return torchyard_jobs.run(faults, home, environments, tell=tell)
