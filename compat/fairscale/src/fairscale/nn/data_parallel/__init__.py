"""Data parallel modules, with fairscale's arguments.

Owns: what each argument is in torch.
Leaves: exchanging gradients and parameters to torch.
Always: losses are those of DistributedDataParallel; an argument that torch can't follow raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as TorchsFullySharded
from torch.nn.parallel import DistributedDataParallel

from fairscale.refusals import refuse

__all__ = ["FullyShardedDataParallel", "ShardedDataParallel"]

# They say how fairscale sends or says things, and nothing about results.
_NEEDS_NOTHING = frozenset(
    {
        "bucket_cap_mb", "clear_autocast_cache", "disable_reshard_on_root", "force_input_to_fp32",
        "no_broadcast_optim_state", "process_group_reduce_scatter",
        "gradient_predivide_factor", "verbose",
    }
)  # fmt: skip


class ShardedDataParallel(DistributedDataParallel):
    """DistributedDataParallel beside one or several OSS. Parameters may be unused in a step."""

    def __init__(
        self,
        module: torch.nn.Module,
        sharded_optimizer: Any,
        process_group: Any = None,
        broadcast_buffers: bool = True,
        sync_models_at_startup: bool = True,
        reduce_buffer_size: int = 2**23,
        auto_refresh_trainable: bool = True,
        reduce_fp16: bool = False,
        warn_on_trainable_params_changed: bool = False,
    ) -> None:
        super().__init__(
            module, process_group=process_group, broadcast_buffers=broadcast_buffers,
            find_unused_parameters=True,
        )  # fmt: skip
        if reduce_fp16:
            self.register_comm_hook(process_group, fp16_compress_hook)

    def reduce(self) -> None:
        """Nothing to do: gradients are reduced in the backward pass."""

    def refresh_trainable(self) -> None:
        """Nothing to do: parameters without gradients are found in each step."""

    def __getattr__(self, name: str) -> Any:
        """The wrapped module's, where this has none."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            return getattr(self.module, name)


class FullyShardedDataParallel(TorchsFullySharded):
    """torch's FullyShardedDataParallel."""

    def __init__(
        self,
        module: torch.nn.Module,
        process_group: Any = None,
        reshard_after_forward: bool = True,
        mixed_precision: bool = False,
        fp32_reduce_scatter: bool = False,
        flatten_parameters: bool = True,
        move_params_to_cpu: bool = False,
        compute_dtype: torch.dtype | None = None,
        buffer_dtype: torch.dtype | None = None,
        move_grads_to_cpu: bool | None = None,
        compute_device: torch.device | None = None,
        cpu_offload: bool = False,
        state_dict_device: torch.device | None = None,
        state_dict_on_rank_0_only: bool = False,
        **more: Any,
    ) -> None:
        """
        Raises:
            NotImplementedError: an argument is not served.
        """
        unknown = sorted(set(more) - _NEEDS_NOTHING)
        if state_dict_on_rank_0_only:
            unknown.append("state_dict_on_rank_0_only")
        if unknown:
            raise NotImplementedError(
                f"torchyard's FullyShardedDataParallel has no argument `{unknown[0]}`"
            )
        is_offloaded = move_params_to_cpu or cpu_offload
        strategy = ShardingStrategy
        if compute_device is None:
            compute_device = torch.device("cpu")
            if torch.cuda.is_available():
                compute_device = torch.device("cuda", torch.cuda.current_device())
        low = compute_dtype or torch.float16
        super().__init__(
            module,
            process_group=process_group,
            sharding_strategy=(
                strategy.FULL_SHARD if reshard_after_forward else strategy.SHARD_GRAD_OP
            ),
            cpu_offload=CPUOffload(offload_params=True) if is_offloaded else None,
            mixed_precision=MixedPrecision(
                param_dtype=low,
                reduce_dtype=torch.float32 if fp32_reduce_scatter else low,
                buffer_dtype=buffer_dtype or low,
            ) if mixed_precision else None,
            device_id=compute_device,
            **({} if flatten_parameters else {"use_orig_params": True}),
        )  # fmt: skip

    @contextmanager
    def summon_full_params(self, recurse: bool = True, volatile: bool = False) -> Iterator[None]:
        """
        Args:
            volatile: changes are forgotten afterwards.
        """
        with TorchsFullySharded.summon_full_params(self, recurse, writeback=not volatile):
            yield

    def gather_full_optim_state_dict(self, optim: Any, **kwargs: Any) -> Any:
        """The optimizer's whole state, on rank 0; all ranks call it."""
        return TorchsFullySharded.full_optim_state_dict(self, optim)

    def get_shard_from_optim_state_dict(self, full_optim_state_dict: Any) -> Any:
        """This rank's part of it."""
        return TorchsFullySharded.shard_full_optim_state_dict(full_optim_state_dict, self)


__getattr__ = refuse("fairscale.nn.data_parallel", __all__)
