"""Accelerate: a loop over what an Accelerator has prepared, resumable in three lines.

    from torchyard.train.integrations.accelerate import loop

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    resumable = loop(accelerator, save_every=100)
    for epoch in resumable.epochs(10):
        for batch in resumable.batches(loader):
            ...

Owns: taking the states of what was prepared or registered.
Leaves: everything else to `Loop`.
Always: states go through `checkpoint`, so they load on another number of ranks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchyard.train.checkpoint.errors import CheckpointError
from torchyard.train.loop import Loop


def loop(
    accelerator: Any, *, save_every: int, folder: str | Path | None = None, **options: Any
) -> Loop:
    """Load the newest checkpoint into what `accelerator` has prepared.

    `batches` counts every batch as a step, also while gradients are accumulated.

    Args:
        accelerator: an `accelerate.Accelerator`, after `prepare` and `register_for_checkpointing`.
        save_every, folder, options: as for `Loop`.

    Raises:
        CheckpointError: nothing was prepared, or the checkpoint does not fit.
    """
    state = _state(accelerator)
    if not state:
        raise CheckpointError(
            "the accelerator has prepared nothing that could be saved",
            "call `accelerator.prepare(model, optimizer, …)` first",
        )
    return Loop(state, save_every=save_every, folder=folder, **options)


def _state(accelerator: Any) -> dict[str, Any]:
    state: dict[str, Any] = {}
    kinds = {
        "model": accelerator._models,
        # The wrapper's own state is the optimizer's.
        "optimizer": [
            getattr(wrapper, "optimizer", wrapper) for wrapper in accelerator._optimizers
        ],
        "scheduler": accelerator._schedulers,
        "registered": accelerator._custom_objects,
    }
    for kind, objects in kinds.items():
        state.update({f"{kind}{number}": value for number, value in enumerate(objects)})
    if getattr(accelerator, "scaler", None) is not None:
        state["scaler"] = accelerator.scaler
    return state
