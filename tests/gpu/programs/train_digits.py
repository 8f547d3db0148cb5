"""DistributedDataParallel on scikit-learn's digits, in the precision that is named."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import rank as own
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel


def main(precision: str) -> None:
    device = own.begin()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    images, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(images / 16, dtype=torch.float32, device=device)
    targets = torch.tensor(labels, device=device)
    torch.manual_seed(0)
    order = torch.randperm(len(inputs))
    train, test = order[:1500], order[1500:]
    module = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    ).to(device)
    model = DistributedDataParallel(module, [device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
    dtype = getattr(torch, precision)

    def autocast() -> Any:
        if dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype)

    losses = []
    for _ in range(12):
        for rows in train[torch.randperm(len(train))].split(50):
            rows = rows[rank::ranks]
            with autocast():
                loss = torch.nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        losses.append(loss.item())
    with torch.no_grad(), autocast():
        logits = model(inputs[test])
    accuracy = logits.argmax(1).eq(targets[test]).float().mean().item()
    digest = sum(weight.detach().double().sum().item() for weight in module.parameters())
    own.answer({"accuracy": accuracy, "losses": losses, "logits": str(logits.dtype),
                "weights": digest})  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
