"""Sending tokens to experts, on this rank or on others, and their results back.

Owns: the buffers, the exchange between ranks, its gradients, the marks on parameters.
Leaves: who goes where to the gate, computing to the experts.
Always: gradients of experts are those of the loss's mean over all ranks, as
DistributedDataParallel's are. Ranks of a group make the same calls, with any number of tokens.

Letters: S tokens, K choices, M model, G ranks of the group, L experts of a rank, C places of an
expert.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ort_moe.experts import MergedFFNExpert
from ort_moe.grids import DistributionGrid
from ort_moe.settings import Settings
from ort_moe.topKgate import Routing


class MixtureOfExperts(nn.Module):
    """A gate and this rank's experts: a list of modules, or one MergedFFNExpert."""

    def __init__(
        self,
        gate: nn.Module,
        experts_: nn.Module,
        distribution_grid: DistributionGrid,
        is_encoder: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.gate = gate
        self.moe_experts = experts_
        self.is_encoder = is_encoder
        self.num_experts = (
            experts_.local_num_experts if isinstance(experts_, MergedFFNExpert) else len(experts_)
        )
        self._settings = Settings.read(options)
        self._grid = distribution_grid
        ranks = distribution_grid.get_expert_world_size()
        total = gate.wg.out_features
        if self.num_experts * ranks != total:
            raise ValueError(
                f"the gate chooses from {total} experts, and {ranks} ranks have "
                f"{self.num_experts} each"
            )
        self._mark()

    def _mark(self) -> None:
        for weight in self.moe_experts.parameters():
            weight.is_moe_param = True
            if self._settings.is_for_zero:
                weight.allreduce = False
                weight.group_name = f"ep_size_{self._grid.get_expert_world_size()}"
        for weight in self.gate.parameters():
            weight.is_gate_param = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Copies of parameters come without marks."""
        super().__setstate__(state)
        self._mark()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def forward(self, input: Tensor, nonpadding: Tensor | None = None, lid: int = -1) -> Tensor:
        """
        Args:
            input: of any shape that ends in M.
            nonpadding: of the shape of the rest.
        """
        tokens_SM = input.reshape(-1, input.shape[-1])
        routing = self.gate(tokens_SM, nonpadding=nonpadding, lid=lid)
        results_SM = self._answer(tokens_SM, routing)
        return results_SM.reshape(input.shape).to(input.dtype)

    def _answer(self, tokens_SM: Tensor, routing: Routing) -> Tensor:
        group = self._grid.get_expert_group()
        ranks = self._grid.get_expert_world_size()
        slots = ranks * self.num_experts * routing.capacity
        model = tokens_SM.shape[1]
        # What has no place goes to a row more, which is cut off.
        rows_KS = torch.where(routing.places_KS < 0, slots, routing.places_KS)
        sent = tokens_SM.new_zeros(slots + 1, model).index_add(
            0, rows_KS.reshape(-1), tokens_SM.repeat(self.gate.k, 1)
        )[:-1]
        sent_GLCM = sent.reshape(ranks, self.num_experts, routing.capacity, model)
        if ranks == 1:
            done_GLCM = self._compute(sent_GLCM)
        else:
            largest = _largest(routing.capacity, group, tokens_SM.device)
            more = largest - routing.capacity
            padded_GLCM = nn.functional.pad(sent_GLCM, (0, 0, 0, more)) if more else sent_GLCM
            here_GLCM = _Exchange.apply(padded_GLCM, group)
            # The mean over ranks, for the experts alone.
            done_GLCM = self._compute(_ScaleGradient.apply(here_GLCM, float(ranks)))
            done_GLCM = _Exchange.apply(_ScaleGradient.apply(done_GLCM, 1 / ranks), group)
            done_GLCM = done_GLCM[:, :, : routing.capacity]
        done = done_GLCM.reshape(slots, model)
        back_KSM = torch.cat((done, done.new_zeros(1, model)))[rows_KS]
        return (routing.weights_KS[..., None].to(done.dtype) * back_KSM).sum(0)

    def _compute(self, tokens_GLCM: Tensor) -> Tensor:
        ranks, local, capacity, model = tokens_GLCM.shape
        tokens_LNM = tokens_GLCM.transpose(0, 1).reshape(local, ranks * capacity, model)
        if isinstance(self.moe_experts, MergedFFNExpert):
            done_LNM = self._call(self.moe_experts, tokens_LNM)
        else:
            done_LNM = torch.stack(
                [
                    self._call(expert, tokens_NM)
                    for expert, tokens_NM in zip(self.moe_experts, tokens_LNM)
                ]
            )
        return done_LNM.reshape(local, ranks, capacity, model).transpose(0, 1)

    def _call(self, expert: nn.Module, tokens: Tensor) -> Tensor:
        if self._settings.is_checkpointed and torch.is_grad_enabled():
            return checkpoint(expert, tokens, use_reentrant=False)
        return expert(tokens)


class MixtureOfExpertsEP(MixtureOfExperts):
    """Experts in parallel over the grid's ranks, or all of them here."""


def MixtureOfExpertsFunc(
    gate: nn.Module,
    experts_: nn.Module,
    distribution_grid: DistributionGrid,
    is_encoder: bool = True,
    options: Mapping[str, Any] | None = None,
) -> MixtureOfExperts:
    return MixtureOfExpertsEP(gate, experts_, distribution_grid, is_encoder, options)


class _Exchange(torch.autograd.Function):
    """Part g of each rank goes to rank g; its gradient goes the same way back."""

    @staticmethod
    def forward(context: Any, parts: Tensor, group: Any) -> Tensor:
        context.group = group
        parts = parts.contiguous()
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts, group=group)
        return received

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _Exchange.apply(gradients[0], context.group), None


class _ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: Tensor, scale: float) -> Tensor:
        context.scale = scale
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * context.scale, None


def _largest(capacity: int, group: Any, device: torch.device) -> int:
    value = torch.tensor(capacity, device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX, group=group)
    return int(value)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"torchyard's ort_moe.moe has no `{name}`")
