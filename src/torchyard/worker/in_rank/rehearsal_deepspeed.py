"""What DeepSpeed's ordinary configurations take from a GPU, beside what torch has.

Owns: the fused Adam, which `"optimizer": {"type": "Adam"}` means without offloading, computed by
torch; the line of `"steps_per_print"`, which tells of a GPU's memory and has no figure for it.
Leaves: all of DeepSpeed that calls torch alone to rehearsal_torch.py; other kernels are refused.
Always: the same update in the same precision; how the sum is rounded may differ in the last bit.
"""

from __future__ import annotations

import math

MYPY = False
if MYPY:
    from typing import Any


_MEMORY = ("memory_allocated", "max_memory_allocated", "memory_cached", "max_memory_cached")


def leave_out_memory(module: Any) -> None:
    """`deepspeed.utils.timer`: `nan` where the line has gigabytes."""
    get_accelerator = module.get_accelerator
    module.get_accelerator = lambda: _WithoutMemory(get_accelerator())


class _WithoutMemory:
    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        if name in _MEMORY:
            return lambda *device: math.nan
        return getattr(self._accelerator, name)


def change_fused_adam(module: Any) -> None:
    """`deepspeed.ops.op_builder.fused_adam`: nothing is compiled."""
    module.FusedAdamBuilder.load = lambda self, verbose=True: _FusedAdam


class _FusedAdam:
    """Stands for the extension.

    Source: csrc/adam/multi_tensor_adam.cu of DeepSpeed.
    """

    @staticmethod
    def multi_tensor_adam(
        chunk_size: int,
        overflow: Any,
        tensor_lists: Any,
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        step: int,
        mode: int,
        bias_correction: int,
        weight_decay: float,
    ) -> None:
        """`tensor_lists`: gradients, parameters, averages, averages of squares; `mode` 1: AdamW."""
        correction1 = 1 - beta1**step if bias_correction else 1.0
        correction2 = 1 - beta2**step if bias_correction else 1.0
        for tensors in zip(*tensor_lists):
            gradient, parameter, average, square = [tensor.float() for tensor in tensors]
            if mode == 0:
                gradient = gradient + weight_decay * parameter
            average.mul_(beta1).add_(gradient, alpha=1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            update = (average / correction1) / ((square / correction2).sqrt() + epsilon)
            if mode == 1:
                update.add_(parameter, alpha=weight_decay)
            parameter.sub_(update, alpha=lr)
            # float() copied those of another type.
            for tensor, result in zip(tensors[1:], (parameter, average, square)):
                if tensor is not result:
                    tensor.copy_(result)
