"""How a rehearsal on the CPU begins on a node.

Owns: what goes into the attempt's environment for it, its variable, the first line of each log.
Leaves: what happens then inside the ranks to in_rank/rehearsal_hook.py and the files it names.
Always: nothing is done for an attempt that is no rehearsal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from torchyard.shared.plan import LaunchPlan

VARIABLE = "TORCHYARD_REHEARSAL"
# A package, because its parts import each other.
PACKAGE = "_torchyard_rehearsal"
FILES = tuple(
    f"rehearsal_{part}.py" for part in ("hook", "limits", "devices", "torch", "cuda", "groups")
)
# Runs at the start of every Python of the environment.
PTH = (
    f'import os; os.environ.get("{VARIABLE}") and '
    f'__import__("{PACKAGE}.rehearsal_hook", fromlist=["install"]).install()\n'
)
_HEAD = "[torchyard] rehearsal on CPU: cuda devices are the CPU, nccl is gloo\n"
# Of the hook's syntax, and of the first torch that lets it take part.
_OLDEST = (3, 8)
_PYTHON = re.compile(r"^version(?:_info)?\s*=\s*(\d+)\.(\d+)", re.MULTILINE)
_TOO_OLD = (
    "[torchyard] rehearsal on CPU: Python {} is too old for it: no GPU is to be seen, "
    "and a script that asks torch for one goes without\n"
)


class _Logged(Protocol):
    @property
    def log(self) -> Path: ...


def variables(plan: LaunchPlan) -> dict[str, str]:
    """What a rank learns of it: how many GPUs its script sees."""
    if not plan.rehearsed_gpus or _too_old(plan):
        return {}
    return {VARIABLE: str(plan.rehearsed_gpus)}


def announce(plan: LaunchPlan, ranks: Iterable[_Logged]) -> None:
    """Write it at the head of each rank's log, before the rank starts."""
    if not plan.rehearsed_gpus:
        return
    old = _too_old(plan)
    head = _TOO_OLD.format(old) if old else _HEAD
    for rank in ranks:
        with open(rank.log, "a", encoding="utf-8") as log:
            log.write(head)


def _too_old(plan: LaunchPlan) -> str:
    """The version of the environment's Python, where it can't be rehearsed; empty else."""
    try:
        said = (Path(plan.environment) / "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = _PYTHON.search(said)
    if found is None or (int(found[1]), int(found[2])) >= _OLDEST:
        return ""
    return f"{found[1]}.{found[2]}"
