"""Set up a rehearsal on the CPU on a node.

Owns: the files it adds to the attempt's environment, its variable, the first line of each log.
Leaves: what happens inside the ranks to in_rank/rehearsal_hook.py and the modules it imports.
Always: attempts that are not rehearsals are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from torchyard.shared.plan import LaunchPlan

VARIABLE = "TORCHYARD_REHEARSAL"
# A package, because its modules import each other.
PACKAGE = "_torchyard_rehearsal"
FILES = tuple(
    f"rehearsal_{part}.py"
    for part in ("hook", "limits", "devices", "torch", "cuda", "groups", "deepspeed")
)
# Runs at the start of every Python of the environment.
PTH = (
    f'import os; os.environ.get("{VARIABLE}") and '
    f'__import__("{PACKAGE}.rehearsal_hook", fromlist=["install"]).install()\n'
)
_ANNOUNCEMENT = "[torchyard] rehearsal on CPU: CUDA devices are the CPU, NCCL is gloo\n"
# The minimum for the hook's syntax, and for the first torch that supports it.
_MIN_PYTHON = (3, 8)
_PYTHON = re.compile(r"^version(?:_info)?\s*=\s*(\d+)\.(\d+)", re.MULTILINE)
_TOO_OLD = (
    "[torchyard] rehearsal on CPU: not supported with Python {}; no GPU is visible, "
    "and torch reports that CUDA is not available\n"
)


class HasLog(Protocol):
    @property
    def log(self) -> Path: ...


def variables(plan: LaunchPlan) -> dict[str, str]:
    """The rank's variable for a rehearsal: how many GPUs its script sees."""
    if not plan.rehearsed_gpus or _unsupported_python(plan):
        return {}
    return {VARIABLE: str(plan.rehearsed_gpus)}


def announce(plan: LaunchPlan, ranks: Iterable[HasLog]) -> None:
    """Announce the rehearsal at the start of each rank's log, before the rank starts."""
    if not plan.rehearsed_gpus:
        return
    python_version = _unsupported_python(plan)
    line = _TOO_OLD.format(python_version) if python_version else _ANNOUNCEMENT
    for rank in ranks:
        with open(rank.log, "a", encoding="utf-8") as log:
            log.write(line)


def _unsupported_python(plan: LaunchPlan) -> str:
    """The version of the environment's Python if it is too old for a rehearsal, otherwise empty."""
    try:
        configuration = (Path(plan.environment) / "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return ""
    version = _PYTHON.search(configuration)
    if version is None or (int(version[1]), int(version[2])) >= _MIN_PYTHON:
        return ""
    return f"{version[1]}.{version[2]}"
