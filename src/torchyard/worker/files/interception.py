"""Set up the interception of torch.save on a node.

Owns: the file it adds to the attempt's environment, its variable, what is missing for it.
Leaves: noticing torch to in_rank/intercept_hook.py, saving to torchyard.train.
Always: attempts without it are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torchyard.shared.plan import LaunchPlan
from torchyard.worker.files.rehearsal import HasLog

VARIABLE = "TORCHYARD_INTERCEPT"
MODULE = "_torchyard_intercept"
FILE = "intercept_hook.py"
# Runs at the start of every Python of the environment.
PTH = f'import os; os.environ.get("{VARIABLE}") and __import__("{MODULE}").install()\n'
_MISSING = "[torchyard] torch.save is not intercepted: the environment has no {}\n"
_NEEDED = {"torch": "`torch`", "torchyard/train": "`torchyard-train`"}


def variables(plan: LaunchPlan) -> dict[str, str]:
    return {VARIABLE: "1"} if plan.intercepts_saves else {}


def announce(plan: LaunchPlan, ranks: Iterable[HasLog]) -> None:
    """Say what is missing at the start of each rank's log, before the rank starts."""
    if not plan.intercepts_saves or not plan.environment:
        return  # what an image holds is only seen inside
    library = Path(plan.environment) / "lib"
    for folder, name in _NEEDED.items():
        if not any(library.glob(f"python3*/site-packages/{folder}")):
            for rank in ranks:
                with open(rank.log, "a", encoding="utf-8") as log:
                    log.write(_MISSING.format(name))
            return
