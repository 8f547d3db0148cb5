"""Optimizers that keep a part of their state on each rank.

Owns: fairscale's names and arguments.
Leaves: dividing and exchanging to torch's ZeroRedundancyOptimizer.
Always: a step has the result of the optimizer that it is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

from fairscale.refusals import refuse

__all__ = ["OSS"]


class OSS(ZeroRedundancyOptimizer):
    """`optim` over the parameters, with each rank's part of its state on that rank."""

    def __init__(
        self,
        params: Any,
        optim: type[torch.optim.Optimizer] = torch.optim.SGD,
        group: Any = None,
        broadcast_buffer_size: int = -1,
        force_broadcast_object: bool = False,
        **defaults: Any,
    ) -> None:
        super().__init__(params, optimizer_class=optim, process_group=group, **defaults)

    def consolidate_state_dict(self, recipient_rank: int = 0) -> None:
        """Bring the whole state to one rank; all ranks call it before `state_dict`."""
        super().consolidate_state_dict(to=recipient_rank)

    def state_dict(self, all_ranks: bool = False) -> dict[str, Any]:
        """The whole state, on the rank that it was brought to.

        Args:
            all_ranks: bring it to every rank first; all of them call it.
        """
        if all_ranks:
            for rank in range(dist.get_world_size(self.process_group)):
                self.consolidate_state_dict(rank)
        state: dict[str, Any] = super().state_dict()
        return state

    def clip_grad_norm(
        self,
        max_norm: float,
        norm_type: float = 2.0,
        filter_params_fn: Callable[[Any], Any] | None = None,
    ) -> torch.Tensor:
        """Clip by the norm over all parameters; each rank has their gradients."""
        weights = [weight for group in self.param_groups for weight in group["params"]]
        chosen = weights if filter_params_fn is None else list(filter_params_fn(weights))
        return torch.nn.utils.clip_grad_norm_(chosen, max_norm, norm_type)

    def refresh_trainable(self) -> None:
        """Nothing to do: parameters without gradients are left out in each step."""


__getattr__ = refuse("fairscale.optim", [*__all__, "grad_scaler"])
