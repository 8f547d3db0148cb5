"""Transformers in the shapes of BERT and GPT-2, without their words: random tokens, real sizes.

Owns: the modules, their sizes and batches.
Leaves: measuring to training_ways.py.
Always: the loss is that of predicting tokens; nothing is drawn at random in a step.

Sources: https://arxiv.org/abs/1810.04805 (BERT); Radford et al., Language Models are Unsupervised
Multitask Learners, 2019 (GPT-2).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """`is_causal`: each token sees those before it alone, and normalisation comes first."""

    layers: int
    width: int
    heads: int
    tokens: int
    batch: int
    is_causal: bool
    vocabulary: int


# `small` fits two cores without a GPU; `large` is BERT-large, and GPT-2 as it was published.
SHAPES = {
    ("bert", "tiny"): Shape(1, 32, 2, 8, 2, False, 128),
    ("gpt2", "tiny"): Shape(1, 32, 2, 8, 2, True, 128),
    ("bert", "small"): Shape(4, 256, 4, 64, 8, False, 8_192),
    ("gpt2", "small"): Shape(4, 256, 4, 64, 8, True, 8_192),
    ("bert", "large"): Shape(24, 1024, 16, 512, 16, False, 30_522),
    ("gpt2", "large"): Shape(12, 768, 12, 1024, 8, True, 50_257),
}


class Layer(nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.shape = shape
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        if self.shape.is_causal:
            x = x + self._attend(self.norm1(x))
            return x + self._feed(self.norm2(x))
        x = self.norm1(x + self._attend(x))
        normal: Tensor = self.norm2(x + self._feed(x))
        return normal

    def _attend(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.shape.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(
            qkv[0], qkv[1], qkv[2], is_causal=self.shape.is_causal
        )
        result: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return result

    def _feed(self, x: Tensor) -> Tensor:
        result: Tensor = self.down(nn.functional.gelu(self.up(x)))
        return result


class Transformer(nn.Module):  # type: ignore[misc,unused-ignore]
    """Tokens to logits."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.tokens, shape.width)
        self.layers = nn.Sequential(*(Layer(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        logits: Tensor = self.head(
            self.norm(self.layers(self.words(tokens) + self.places(positions)))
        )
        return logits


def batch(shape: Shape, step: int, device: str) -> Tensor:
    """The tokens of a step, the same on every call."""
    made = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, shape.vocabulary, (shape.batch, shape.tokens), generator=made)
    return tokens.to(device)


def loss(logits: Tensor, tokens: Tensor, shape: Shape) -> Tensor:
    """Of the next token, or of the token itself, which BERT predicts where it is masked."""
    if shape.is_causal:
        logits, tokens = logits[:, :-1], tokens[:, 1:]
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())
