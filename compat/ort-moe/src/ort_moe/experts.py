"""Feed-forward networks as experts: one, and several in one pair of tensors.

Owns: their weights and their start.
Leaves: who is asked what to moe.
Always: they work on the last dimension and have no bias.

Letters: L experts of this rank, N tokens, M model, F hidden.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ort_moe.grids import DistributionGrid

Activation = Callable[[Tensor], Tensor]


class FFNExpert(nn.Module):
    """One expert."""

    def __init__(
        self,
        d_model: int,
        dim_feedforward: int,
        dgrid: DistributionGrid | None,
        activation_fn: Activation = nn.functional.relu,
        expert_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.linear1 = nn.Linear(d_model, dim_feedforward, bias=False)
        self.linear2 = nn.Linear(dim_feedforward, d_model, bias=False)
        self.activation_fn = activation_fn
        self.expert_dropout = expert_dropout

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.activation_fn(self.linear1(x))
        hidden = nn.functional.dropout(hidden, self.expert_dropout, self.training)
        return self.linear2(hidden)


class MergedFFNExpert(nn.Module):
    """All experts of this rank, computed by batched products."""

    def __init__(
        self,
        d_model: int,
        dim_feedforward: int,
        local_num_experts: int,
        dgrid: DistributionGrid | None,
        activation_fn: Activation = nn.functional.relu,
        expert_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.weight1 = nn.Parameter(torch.empty(local_num_experts, d_model, dim_feedforward))
        self.weight2 = nn.Parameter(torch.empty(local_num_experts, dim_feedforward, d_model))
        self.local_num_experts = local_num_experts
        self.activation_fn = activation_fn
        self.expert_dropout = expert_dropout
        for weight in (self.weight1, self.weight2):
            # As nn.Linear begins, whose weights lie the other way round.
            bound = 1 / math.sqrt(weight.shape[1])
            nn.init.uniform_(weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """`x`: of the shape L N M."""
        hidden_LNF = self.activation_fn(torch.bmm(x, self.weight1.to(x.dtype)))
        hidden_LNF = nn.functional.dropout(hidden_LNF, self.expert_dropout, self.training)
        return torch.bmm(hidden_LNF, self.weight2.to(x.dtype))
