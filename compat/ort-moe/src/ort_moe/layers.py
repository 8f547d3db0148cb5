"""Transformer layers whose feed-forward part is a Mixture of Experts.

Owns: attention, normalisation and dropout around the experts, as torch's own layers have them.
Leaves: routing to topKgate, sending to moe.
Always: the sequence is the first dimension, as in torch's layers by default; normalisation comes
after each part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ort_moe.experts import FFNExpert, MergedFFNExpert
from ort_moe.grids import DistributionGrid, local_experts
from ort_moe.moe import MixtureOfExperts, MixtureOfExpertsFunc
from ort_moe.settings import Settings
from ort_moe.topKgate import TopKGate

_ACTIVATIONS = {"relu": nn.functional.relu, "gelu": nn.functional.gelu}


class _Parts:
    """What both layers take, as their experts need it."""

    def __init__(
        self,
        d_model: int,
        dim_feedforward: int,
        activation: str,
        nexperts: int,
        balance_ratio: float,
        gate: nn.Module | None,
        expertslist: nn.Module | None,
        distribution_grid: DistributionGrid | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        if activation not in _ACTIVATIONS:
            raise ValueError(f"activation must be relu or gelu, not {activation!r}")
        grid = distribution_grid or DistributionGrid()
        self.gate = gate or TopKGate(
            d_model, nexperts, dgrid=grid, balance_ratio=balance_ratio, k=1, options=options
        )
        self.experts = expertslist
        if expertslist is None:
            local, function = local_experts(nexperts, grid), _ACTIVATIONS[activation]
            if Settings.read(options).is_merged:
                self.experts = MergedFFNExpert(d_model, dim_feedforward, local, grid, function)
            else:
                self.experts = nn.ModuleList(
                    FFNExpert(d_model, dim_feedforward, grid, function) for _ in range(local)
                )
        self.grid = grid
        self.options = options

    def mixture(self, is_encoder: bool) -> MixtureOfExperts:
        assert self.experts is not None
        return MixtureOfExpertsFunc(self.gate, self.experts, self.grid, is_encoder, self.options)


class TransformerMoEEncoderLayer(nn.Module):
    """Self-attention, then experts."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        nexperts: int = 64,
        balance_ratio: float = 0.01,
        gate: nn.Module | None = None,
        expertslist: nn.Module | None = None,
        distribution_grid: DistributionGrid | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        parts = _Parts(d_model, dim_feedforward, activation, nexperts, balance_ratio, gate,
                       expertslist, distribution_grid, options)  # fmt: skip
        self.self_attn = nn.MultiheadAttention(d_model, nhead, dropout=dropout)
        self.moe = parts.mixture(is_encoder=True)
        self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        attended = self.self_attn(
            src, src, src, attn_mask=src_mask, key_padding_mask=src_key_padding_mask
        )[0]
        src = self.norm1(src + self.dropout1(attended))
        return self.norm2(src + self.dropout2(self.moe(src)))


class TransformerMoEDecoderLayer(nn.Module):
    """Self-attention, attention to the encoder's results, then experts."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        nexperts: int = 64,
        balance_ratio: float = 0.01,
        gate: nn.Module | None = None,
        expertslist: nn.Module | None = None,
        distribution_grid: DistributionGrid | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        parts = _Parts(d_model, dim_feedforward, activation, nexperts, balance_ratio, gate,
                       expertslist, distribution_grid, options)  # fmt: skip
        self.self_attn = nn.MultiheadAttention(d_model, nhead, dropout=dropout)
        self.multihead_attn = nn.MultiheadAttention(d_model, nhead, dropout=dropout)
        self.moe = parts.mixture(is_encoder=False)
        self.dropout1, self.dropout2, self.dropout3 = (nn.Dropout(dropout) for _ in range(3))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        attended = self.self_attn(
            tgt, tgt, tgt, attn_mask=tgt_mask, key_padding_mask=tgt_key_padding_mask
        )[0]
        tgt = self.norm1(tgt + self.dropout1(attended))
        attended = self.multihead_attn(
            tgt, memory, memory, attn_mask=memory_mask, key_padding_mask=memory_key_padding_mask
        )[0]
        tgt = self.norm2(tgt + self.dropout2(attended))
        return self.norm3(tgt + self.dropout3(self.moe(tgt)))


def __getattr__(name: str) -> Any:
    raise AttributeError(f"torchyard's ort_moe.layers has no `{name}`")
