"""Save the state of a training without stopping it, and load it again on any number of ranks.

    from torchyard.train import checkpoint

    checkpoint.load({"model": model, "optimizer": optimizer})
    ...
    checkpoint.save(step, {"model": model, "optimizer": optimizer})

Owns: the `Checkpointer` that these functions use, one for each process.
Leaves: everything else to `Checkpointer`.
Always: every rank of the process group calls `save` and `load`, with the same step.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchyard.train.checkpoint.checkpointer import Checkpointer, Pending
from torchyard.train.checkpoint.errors import CheckpointError, CheckpointMismatch, NonFiniteState
from torchyard.train.checkpoint.folders import CheckpointInfo
from torchyard.train.checkpoint.retention import Retention

__all__ = [
    "CheckpointError",
    "CheckpointInfo",
    "CheckpointMismatch",
    "Checkpointer",
    "NonFiniteState",
    "Pending",
    "Retention",
    "configure",
    "delete",
    "latest",
    "list",
    "load",
    "save",
    "wait",
]

_lock = threading.Lock()
_default: Checkpointer | None = None


def configure(folder: str | Path | None = None, **options: Any) -> Checkpointer:
    """Replace the `Checkpointer` that this module's functions use; see its arguments."""
    global _default
    checkpointer = Checkpointer(folder, **options)
    with _lock:
        previous, _default = _default, checkpointer
    if previous is not None:
        previous.close()
    return checkpointer


def save(step: int, state: Mapping[str, Any], *, metric: float | None = None) -> Pending:
    """Copy `state` to host memory and write it in the background; see `Checkpointer.save`."""
    return _checkpointer().save(step, state, metric=metric)


def load(
    state: Mapping[str, Any] | None = None, *, step: int | None = None, strict: bool = True
) -> tuple[int, dict[str, Any]] | None:
    """Load the newest checkpoint, or that of `step`; see `Checkpointer.load`."""
    return _checkpointer().load(state, step=step, strict=strict)


def latest() -> int | None:
    """Return the step of the newest whole checkpoint, None without one."""
    return _checkpointer().latest()


def list() -> tuple[CheckpointInfo, ...]:
    """Return every whole checkpoint, in the order of their steps."""
    return _checkpointer().list()


def delete(step: int) -> None:
    """Delete the checkpoint of `step`; see `Checkpointer.delete`."""
    _checkpointer().delete(step)


def wait(timeout_s: float | None = None) -> None:
    """Return when everything that was saved is durable; see `Checkpointer.wait`."""
    _checkpointer().wait(timeout_s)


def _checkpointer() -> Checkpointer:
    global _default
    with _lock:
        if _default is None:
            _default = Checkpointer()
        return _default
