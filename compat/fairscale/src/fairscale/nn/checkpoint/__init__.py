"""Modules whose inner results are computed again in the backward pass.

Owns: putting torch's checkpoint around a module's forward.
Leaves: computing again to torch.
Always: the module stays the same object, with the same keys; copies and pickles work.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from fairscale.refusals import refuse

__all__ = ["checkpoint_wrapper"]


def checkpoint_wrapper(module: torch.nn.Module, offload_to_cpu: bool = False) -> torch.nn.Module:
    """
    Args:
        offload_to_cpu: what is kept for the backward pass waits in host memory.
    """
    module.forward = _Forward(module, offload_to_cpu)
    return module


class _Forward:
    """In the place of a module's own `forward`."""

    def __init__(self, module: torch.nn.Module, offload_to_cpu: bool) -> None:
        self._module = module
        self._offload_to_cpu = offload_to_cpu

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        run = partial(type(self._module).forward, self._module)
        if not torch.is_grad_enabled():
            return run(*inputs, **keywords)
        keep: Any = contextlib.nullcontext()
        if self._offload_to_cpu:
            keep = torch.autograd.graph.save_on_cpu(pin_memory=torch.cuda.is_available())
        with keep:
            return checkpoint(run, *inputs, use_reentrant=False, **keywords)


__getattr__ = refuse("fairscale.nn.checkpoint", __all__)
