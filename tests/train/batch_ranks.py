"""What ranks do in the tests of batches: train a part of an epoch, and go on."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader

from torchyard.train import Batches, Loop

SAMPLES = 101


def train_some(folder: str, rule: dict[str, Any], until: int | None) -> list[list[list[int]]]:
    """The samples of each batch that this rank had, by epoch, until that step or the end."""
    data = list(range(SAMPLES))
    batches = Batches(data, seed=3, **rule)
    loader = DataLoader(data, batch_sampler=batches)
    loop = Loop({"weight": torch.zeros(1)}, save_every=1, folder=folder)
    epochs: list[list[list[int]]] = [[], []]
    for epoch in loop.epochs(2):
        for batch in loop.batches(loader):
            if loop.step == until:
                loop.checkpointer.wait()
                return epochs
            epochs[epoch].append(batch.tolist())
    return epochs
