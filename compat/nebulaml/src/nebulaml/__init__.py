"""The names of nebulaml: checkpoints that training does not wait for.

    import nebulaml as nm

    nm.init("/mnt/checkpoints", persistent_time_interval=100)
    checkpoint = nm.Checkpoint("step-100", 2)
    checkpoint.save("model", model.state_dict())
    checkpoint.save("optimizer", optimizer.state_dict())
    ...
    model.load_state_dict(nm.get_latest_checkpoint().load("model"))

Owns: what scripts written for Nebula import; classes for Lightning are made when they are used.
Leaves: checkpoints to checkpoints, Lightning's classes to lightning_classes.
Always: what is not served raises with its name.
"""

from __future__ import annotations

from typing import Any

from nebulaml.checkpoints import (
    Checkpoint,
    get_checkpoint,
    get_latest_checkpoint,
    get_latest_checkpoint_path,
    init,
    list_checkpoints,
)

_OF_LIGHTNING = ("NebulaCallback", "NebulaCheckpointIO")

__all__ = [
    "Checkpoint",
    "get_checkpoint",
    "get_latest_checkpoint",
    "get_latest_checkpoint_path",
    "init",
    "list_checkpoints",
]


def __getattr__(name: str) -> Any:
    if name in _OF_LIGHTNING:
        from nebulaml import lightning_classes

        return lightning_classes.make(name)
    raise AttributeError(
        f"torchyard's nebulaml has no `{name}`: it serves {', '.join((*__all__, *_OF_LIGHTNING))}"
    )
