"""What a gate's loss is made of.

Owns: the formulas; each is 1 or least where tokens are spread evenly.
Leaves: their weights to the gate.
Always: probabilities carry gradients, counts don't.

Letters: S tokens, E experts.

Sources: load_balance: Fedus et al., Switch Transformers, https://arxiv.org/abs/2101.03961, (4);
z_loss: Zoph et al., ST-MoE, https://arxiv.org/abs/2202.08906, (5); mean_importance and sparsity_l1:
You et al., SpeechMoE, https://arxiv.org/abs/2105.03036, 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def load_balance(logits_SE: Tensor, shares_E: Tensor) -> Tensor:
    """`shares_E`: of the tokens, by first choice."""
    return logits_SE.shape[1] * (logits_SE.softmax(1).mean(0) * shares_E).sum()


def mean_importance(logits_SE: Tensor, shares_E: Tensor) -> Tensor:
    return logits_SE.shape[1] * logits_SE.softmax(1).mean(0).square().sum()


def sparsity_l1(logits_SE: Tensor, shares_E: Tensor) -> Tensor:
    gates_SE = logits_SE.softmax(1)
    return torch.nn.functional.normalize(gates_SE, dim=1).abs().sum(1).mean()


def z_loss(logits_SE: Tensor, shares_E: Tensor) -> Tensor:
    return logits_SE.logsumexp(1).square().mean()


FORMULAS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "load_balance": load_balance,
    "mean_importance": mean_importance,
    "sparsity_l1": sparsity_l1,
    "z_loss": z_loss,
}


def weights(balance_ratio: float | Mapping[str, float]) -> dict[str, float]:
    """A number weighs `load_balance`.

    Raises:
        ValueError: there is no such loss.
    """
    if not isinstance(balance_ratio, Mapping):
        return {"load_balance": float(balance_ratio)}
    unknown = sorted(set(balance_ratio) - set(FORMULAS))
    if unknown:
        raise ValueError(
            f"torchyard's ort_moe has no loss `{unknown[0]}`: it has {', '.join(FORMULAS)}"
        )
    return dict(balance_ratio)
