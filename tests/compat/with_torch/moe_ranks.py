"""A mixture of experts, and its training on two ranks compared with that on one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

MODEL, HIDDEN, EXPERTS = 8, 16, 4


def mixture(grid: Any, *, merged: bool, k: int = 2, factor: float = 0.75, seed: int = 0) -> Any:
    from ort_moe.experts import FFNExpert, MergedFFNExpert
    from ort_moe.grids import local_experts
    from ort_moe.moe import MixtureOfExpertsFunc
    from ort_moe.topKgate import TopKGate

    torch.manual_seed(seed)
    gate = TopKGate(MODEL, EXPERTS, dgrid=grid, k=k, capacity_factor=factor, balance_ratio=0.1)
    local = local_experts(EXPERTS, grid)
    experts: Any = torch.nn.ModuleList(FFNExpert(MODEL, HIDDEN, grid) for _ in range(local))
    if merged:
        experts = MergedFFNExpert(MODEL, HIDDEN, local, grid)
    return MixtureOfExpertsFunc(gate, experts, grid)


def batches(rank: int) -> list[torch.Tensor]:
    """Unequal numbers of tokens on the two ranks, which make unequal capacities."""
    made = torch.Generator().manual_seed(5)
    both = [[torch.randn(6 + 4 * part, MODEL, generator=made) for part in (0, 1)] for _ in range(4)]
    return [parts[rank] for parts in both]


def one_rank(layer: Any) -> None:
    """Train by the mean of both parts' losses."""
    optimizer = torch.optim.SGD(layer.parameters(), 0.5)
    for parts in zip(batches(0), batches(1), strict=True):
        optimizer.zero_grad()
        for tokens in parts:
            (loss(layer, layer.gate, tokens) / 2).backward()
        optimizer.step()


def loss(model: Any, gate: Any, tokens: torch.Tensor) -> torch.Tensor:
    apart: torch.Tensor = (model(tokens) - tokens.flip(1)).pow(2).mean()
    return apart + gate.loss


def parallel(layer: Any, grid: Any, rank: int, *, with_ddp: bool) -> None:
    from ort_moe.utils import exclude_moe_params_in_ddp, moe_module_all_reduce

    model = layer
    if with_ddp:
        exclude_moe_params_in_ddp(layer)
        model = torch.nn.parallel.DistributedDataParallel(layer)
    optimizer = torch.optim.SGD(layer.parameters(), 0.5)
    for tokens in batches(rank):
        optimizer.zero_grad()
        loss(model, layer.gate, tokens).backward()
        if not with_ddp:
            moe_module_all_reduce(layer, grid)
        optimizer.step()


def own_part(full: Any, layer: Any, rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """This rank's weights beside those of one rank."""
    first = rank * EXPERTS // 2
    pairs = [(layer.gate.wg.weight, full.gate.wg.weight)]
    if hasattr(layer.moe_experts, "weight1"):
        for name in ("weight1", "weight2"):
            weight = getattr(full.moe_experts, name)[first : first + EXPERTS // 2]
            pairs.append((getattr(layer.moe_experts, name), weight))
        return pairs
    for number, expert in enumerate(layer.moe_experts):
        other = full.moe_experts[first + number]
        pairs += zip(expert.parameters(), other.parameters(), strict=True)
    return pairs


def compare() -> dict[str, Any]:
    """How far the weights of two ranks lie from those of one."""
    sys.path.insert(0, str(Path(__file__).parents[3] / "compat" / "ort-moe" / "src"))
    from ort_moe.grids import DistributionGrid

    rank = dist.get_rank()
    grid = DistributionGrid(expert_parallel_group_size=2)
    answer: dict[str, Any] = {}
    for name, merged in (("merged", True), ("single", False)):
        full = mixture(DistributionGrid(), merged=merged)
        layer = mixture(grid, merged=merged)
        with torch.no_grad():
            for weight, start in own_part(full, layer, rank):
                weight.copy_(start)
        before = layer.gate.wg.weight.detach().clone()
        one_rank(full)
        parallel(layer, grid, rank, with_ddp=not merged)
        apart = [(weight - other).abs().max() for weight, other in own_part(full, layer, rank)]
        answer[name] = torch.stack(apart).max().item()
        answer["moved"] = (layer.gate.wg.weight - before).abs().max().item()
        answer["routed"] = float(layer.gate.gate_log["gate_routed"])
    answer["ids"] = [grid.map_expert_id_local_to_global(EXPERTS, local) for local in (0, 1)]
    dist.barrier()
    return answer
