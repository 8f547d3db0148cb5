"""How a rehearsal on the CPU begins on a node.

Owns: what goes into the attempt's environment for it, its variable, the first line of each log.
Leaves: what happens then inside the ranks to rehearsal_hook.py and the files it names.
Always: nothing is done for an attempt that is no rehearsal.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from torchyard.plan import LaunchPlan

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


class _Logged(Protocol):
    @property
    def log(self) -> Path: ...


def variables(plan: LaunchPlan) -> dict[str, str]:
    """What a rank learns of it: how many GPUs its script sees."""
    return {VARIABLE: str(plan.rehearsed_gpus)} if plan.rehearsed_gpus else {}


def announce(plan: LaunchPlan, ranks: Iterable[_Logged]) -> None:
    """Write it at the head of each rank's log, before the rank starts."""
    for rank in ranks if plan.rehearsed_gpus else ():
        with open(rank.log, "a", encoding="utf-8") as log:
            log.write(_HEAD)
