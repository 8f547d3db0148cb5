"""The same beginning for every rank: parameters and the state of optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from horovod.torch.collectives import broadcast_async_, broadcast_object, synchronize


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]], root_rank: int, **more: Any
) -> None:
    """Replace every rank's parameters by those of `root_rank`.

    Args:
        params: `model.state_dict()`, `model.named_parameters()`, or an optimizer's state.
    """
    items = sorted(params.items()) if isinstance(params, Mapping) else list(params)
    if not all(isinstance(entry, tuple) and len(entry) == 2 for entry in items):
        raise ValueError("invalid params: give `state_dict()` or `named_parameters()`")
    tensors = [value for _, value in items if isinstance(value, torch.Tensor)]
    for handle in [broadcast_async_(tensor, root_rank, **more) for tensor in tensors]:
        synchronize(handle)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None, **more: Any
) -> None:
    """Replace every rank's optimizer state, learning rates included, by that of `root_rank`."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    state = broadcast_object(_on_the_cpu(optimizer.state_dict()), root_rank, **more)
    optimizer.load_state_dict(state)


def _on_the_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_the_cpu(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_on_the_cpu(inner) for inner in value)
    return value
