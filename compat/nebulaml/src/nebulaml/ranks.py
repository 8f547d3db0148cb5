"""Values that the ranks of a training have in common.

Owns: the first rank's choice as everybody's.
Leaves: what is chosen to checkpoints.
Always: no rank waits for another one, so a rank alone may save.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from torchyard.train.checkpoint.ranks import current


def rank() -> int:
    """This process's rank; the launcher's where there is no process group."""
    ranks = current()
    launched = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK", "")
    if ranks.store is None and launched.isdigit():
        return int(launched)
    return ranks.rank


def agree(key: str, choose: Callable[[], str]) -> str:
    """What the first rank that asks for `key` chooses; alone without a process group."""
    store = current().store
    if store is None:
        return choose()
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    value = store.compare_set(f"nebula/{attempt}/{key}", "", choose())
    return str(value.decode() if isinstance(value, bytes) else value)


def is_group_missing() -> bool:
    """Whether several ranks were launched that have no process group yet."""
    launched = os.environ.get("WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE", "")
    return current().store is None and launched.isdigit() and int(launched) > 1
