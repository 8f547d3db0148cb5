"""What training loops call: the gates' loss, and gradients that DistributedDataParallel leaves.

Owns: finding experts in a model, averaging over the right ranks.
Leaves: the groups to grids.
Always: experts are averaged over their replicas alone, all else over all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ort_moe.grids import DistributionGrid
from ort_moe.moe import MixtureOfExperts

_EXPERTS = "moe_experts"


def get_moe_loss(
    model: nn.Module,
    layer_level: bool = False,
    dtype: torch.dtype = torch.float32,
    condition: str | None = None,
) -> tuple[Tensor | None, dict[str, Tensor] | None, int]:
    """The sum of the gates' losses, the sum of their logs, and how many there are.

    Args:
        layer_level: the logs of each layer, too, as `name_l0` and so on.
        condition: only of mixtures whose name contains it.
    """
    gates = [mixture.gate for _, mixture in _mixtures(model, condition)]
    gates = [gate for gate in gates if gate.loss is not None]
    if not gates:
        return None, None, 0
    log: dict[str, Tensor] = {}
    for number, gate in enumerate(gates):
        for name, value in gate.gate_log.items():
            log[name] = log[name] + value if name in log else value.clone()
            if layer_level and value.ndim == 0:
                log[f"{name}_l{number}"] = value.clone()
    return torch.stack([gate.loss for gate in gates]).sum().to(dtype), log, len(gates)


def clear_moe_loss(model: nn.Module, condition: str | None = None) -> None:
    for _, mixture in _mixtures(model, condition):
        mixture.gate.loss = None


def set_gate_metrics(model: nn.Module, balance_ratio: Any = None, gate_log_req: Any = None) -> None:
    for _, mixture in _mixtures(model, None):
        mixture.gate.set_gate_metrics(balance_ratio, gate_log_req)


def is_moe_parameter(p: Any) -> bool:
    return bool(getattr(p, "is_moe_param", False))


def is_gate_parameter(p: Any) -> bool:
    return bool(getattr(p, "is_gate_param", False))


def get_expert_parameters_list(model: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in model.parameters() if is_moe_parameter(weight)]


def get_non_expert_parameters_list(model: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in model.parameters() if not is_moe_parameter(weight)]


def get_expert_parameters_state_dict(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if _EXPERTS in name}


def get_non_expert_parameters_state_dict(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if _EXPERTS not in name}


def exclude_moe_params_in_ddp(model: nn.Module, moe_name: str = "expert") -> None:
    """Called before DistributedDataParallel wraps the model, which then leaves experts alone."""
    model._ddp_params_and_buffers_to_ignore = [
        name for name, weight in model.named_parameters()
        if is_moe_parameter(weight) or moe_name in name
    ]  # fmt: skip


def moe_module_all_reduce(model: nn.Module, dgrid: DistributionGrid) -> None:
    """Average all gradients, in place of DistributedDataParallel."""
    moe_module_all_reduce_non_experts(model, dgrid)
    moe_module_all_reduce_experts(model, dgrid)


def moe_module_all_reduce_non_experts(model: nn.Module, dgrid: DistributionGrid) -> None:
    if dgrid.get_data_parallel_world_size() > 1:
        _average(get_non_expert_parameters_list(model), dgrid.get_data_parallel_group())


def moe_module_all_reduce_experts(model: nn.Module, dgrid: DistributionGrid) -> None:
    """After the backward pass, where experts have replicas."""
    if dgrid.get_expert_replica_group() is not None:
        _average(get_expert_parameters_list(model), dgrid.get_expert_replica_group())


def broadcast_parameters(model: nn.Module, dgrid: DistributionGrid) -> None:
    """Start alike: rank 0's weights everywhere, an expert's on all of its replicas."""
    if dgrid.get_data_parallel_world_size() == 1:
        return
    with torch.no_grad():
        for weight in get_non_expert_parameters_list(model):
            dist.broadcast(weight, 0)
        replicas = dgrid.get_expert_replica_group()
        if replicas is not None:
            for weight in get_expert_parameters_list(model):
                dist.broadcast(weight, dgrid.get_expert_replica_src_rank(), group=replicas)


def _average(weights: list[nn.Parameter], group: Any) -> None:
    """A rank whose experts had no token takes part with zeros."""
    ranks = dist.get_world_size(group)
    for weight in weights:
        if not weight.requires_grad:
            continue
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        dist.all_reduce(weight.grad, group=group)
        weight.grad /= ranks


def _mixtures(model: nn.Module, condition: str | None) -> Iterator[tuple[str, MixtureOfExperts]]:
    for name, module in model.named_modules():
        if isinstance(module, MixtureOfExperts) and (condition is None or condition in name):
            yield name, module


def __getattr__(name: str) -> Any:
    raise AttributeError(f"torchyard's ort_moe.utils has no `{name}`")
