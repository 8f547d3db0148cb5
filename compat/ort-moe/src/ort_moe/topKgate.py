"""The gate: which experts each token goes to, in which place, and how much each result weighs.

Owns: choosing, capacity, dropping, the losses of it.
Leaves: sending tokens to moe.
Always: computed in float32; all first choices have their places before any second one; a token that
finds its expert full weighs nothing there.

Letters: S tokens, E experts, K choices, M model.

Sources: Lepikhin et al., GShard, https://arxiv.org/abs/2006.16668, algorithm 1; Fedus et al.,
Switch Transformers, https://arxiv.org/abs/2101.03961.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ort_moe import loss_functions
from ort_moe.grids import DistributionGrid
from ort_moe.settings import Settings

DROP_TYPES = ("cut", "random", "routing_weight")


@dataclass(frozen=True)
class Routing:
    """`places_KS` count over all experts' places, `capacity` for each; -1: the token is dropped."""

    places_KS: Tensor
    weights_KS: Tensor
    capacity: int


class TopKGate(nn.Module):
    """A linear gate. After a call, `loss` and `gate_log` are those of its tokens."""

    def __init__(
        self,
        model_dim: int,
        num_experts: int,
        dgrid: DistributionGrid,
        balance_ratio: float | Mapping[str, float] = 0.01,
        gate_log_req: Mapping[str, bool] | None = None,
        capacity_factor: float = 1.0,
        eval_capacity_factor: float = 1.0,
        k: int = 2,
        switch_jitter: float = 0.0,
        switch_dropout: float = 0.0,
        logits_gumbel: float = 0.0,
        random_token_drop: bool = False,
        token_drop_type: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        Settings.read(options)
        if not 1 <= k <= num_experts:
            raise ValueError(f"k must be from 1 to {num_experts}, the number of experts, not {k}")
        self.token_drop_type = token_drop_type or ("random" if random_token_drop else "cut")
        if self.token_drop_type not in DROP_TYPES:
            raise ValueError(
                f"token_drop_type must be one of {', '.join(DROP_TYPES)}, "
                f"not {self.token_drop_type!r}"
            )
        if min(capacity_factor, eval_capacity_factor) <= 0:
            raise ValueError("capacity factors must be positive")
        self.wg = nn.Linear(model_dim, num_experts, bias=False)
        self.dgrid = dgrid
        self.k = k
        self.capacity_factor = capacity_factor
        self.eval_capacity_factor = eval_capacity_factor
        self.switch_jitter = switch_jitter
        self.switch_dropout = switch_dropout
        self.logits_gumbel = logits_gumbel
        self.loss: Tensor | None = None
        self.gate_log: dict[str, Tensor] = {}
        self.set_gate_metrics(balance_ratio, gate_log_req or {})

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles come without the last call's loss, which belongs to its graph."""
        return {**self.__dict__, "loss": None, "gate_log": {}}

    def set_gate_metrics(
        self,
        balance_ratio: float | Mapping[str, float] | None = None,
        gate_log_req: Mapping[str, bool] | None = None,
    ) -> None:
        """`gate_log` always has the share of choices that found a place, `gate_routed`."""
        if balance_ratio is not None:
            self.balance_ratio = loss_functions.weights(balance_ratio)
        if gate_log_req is not None:
            self.gate_log_req = dict(gate_log_req)

    def forward(self, input: Tensor, nonpadding: Tensor | None = None, lid: int = -1) -> Routing:
        """
        Args:
            input: of the shape S M.
            nonpadding: of the shape S; what is false or 0 goes to no expert.
            lid: taken for compatibility.
        """
        with torch.autocast(input.device.type, enabled=False):
            return self._route(input.float(), nonpadding)

    def _route(self, tokens_SM: Tensor, nonpadding_S: Tensor | None) -> Routing:
        logits_SE = nn.functional.linear(self._noisy(tokens_SM), self.wg.weight.float())
        choices_SE = logits_SE
        if self.training and self.logits_gumbel > 0:
            noise_SE = -torch.empty_like(logits_SE).exponential_().log()
            choices_SE = logits_SE + self.logits_gumbel * noise_SE
        gates_SK, experts_SK = choices_SE.softmax(1).topk(self.k, dim=1)
        if self.k > 1:
            gates_SK = gates_SK / gates_SK.sum(1, keepdim=True).clamp(min=1e-9)
        is_token_S = torch.ones_like(experts_SK[:, 0], dtype=torch.bool)
        if nonpadding_S is not None:
            is_token_S = nonpadding_S.reshape(-1).bool()
        capacity = self._capacity(len(tokens_SM))
        order_S = self._order(gates_SK, is_token_S)
        places_KS = _places(experts_SK.t(), is_token_S, order_S, capacity, logits_SE.shape[1])
        weights_KS = torch.where(places_KS >= 0, gates_SK.t(), 0.0)
        self._measure(logits_SE[is_token_S], experts_SK[is_token_S, 0], places_KS[:, is_token_S])
        return Routing(places_KS, weights_KS, capacity)

    def _noisy(self, tokens_SM: Tensor) -> Tensor:
        """Noise on the gate's input, for a single choice as in Switch Transformers."""
        if not self.training or self.k > 1:
            return tokens_SM
        if self.switch_jitter > 0:
            noise_SM = torch.empty_like(tokens_SM).uniform_(
                1 - self.switch_jitter, 1 + self.switch_jitter
            )
            return tokens_SM * noise_SM
        return nn.functional.dropout(tokens_SM, self.switch_dropout)

    def _capacity(self, tokens: int) -> int:
        factor = self.capacity_factor if self.training else self.eval_capacity_factor
        slots = math.ceil(self.k * tokens / self.wg.out_features * factor)
        return max(1, min(slots, tokens))

    def _order(self, gates_SK: Tensor, is_token_S: Tensor) -> Tensor:
        """Who gets a place first."""
        if self.token_drop_type == "random" and self.training:
            return torch.randperm(len(is_token_S), device=is_token_S.device)
        if self.token_drop_type == "routing_weight":
            return gates_SK[:, 0].argsort(descending=True, stable=True)
        return torch.arange(len(is_token_S), device=is_token_S.device)

    def _measure(self, logits_SE: Tensor, first_S: Tensor, places_KS: Tensor) -> None:
        counts_E = torch.bincount(first_S, minlength=logits_SE.shape[1]).float()
        shares_E = counts_E / max(1, len(first_S))
        loss = logits_SE.sum() * 0  # Keeps its gradient where there are no tokens.
        if len(first_S):
            for name, ratio in self.balance_ratio.items():
                loss = loss + ratio * loss_functions.FORMULAS[name](logits_SE, shares_E)
        self.loss = loss
        routed = (places_KS >= 0).float().mean() if places_KS.numel() else shares_E.sum()
        self.gate_log = {"gate_routed": routed.detach()}
        if self.gate_log_req.get("expert_fraction"):
            self.gate_log["expert_fraction"] = shares_E


def _places(
    experts_KS: Tensor, is_token_S: Tensor, order_S: Tensor, capacity: int, experts: int
) -> Tensor:
    """Each choice's place, counted over all experts' places; -1 where its expert is full."""
    taken_E = torch.zeros(experts, dtype=torch.long, device=experts_KS.device)
    rows = []
    for chosen_S in experts_KS:
        chosen_S, is_here_S = chosen_S[order_S], is_token_S[order_S]
        one_hot_SE = nn.functional.one_hot(chosen_S, experts) * is_here_S[:, None]
        place_S = (one_hot_SE.cumsum(0) - 1 + taken_E).gather(1, chosen_S[:, None]).squeeze(1)
        taken_E = taken_E + one_hot_SE.sum(0)
        fits_S = is_here_S & (place_S < capacity)
        row_S = torch.empty_like(chosen_S)
        row_S[order_S] = torch.where(fits_S, chosen_S * capacity + place_S, -1)
        rows.append(row_S)
    return torch.stack(rows)
