"""A linear model of handwritten digits, trained by whatever ranks torchrun starts.

Shape suffixes: N images of this rank, P pixels.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SEED = 7
STEPS = 150
TEST_IMAGES = 360


def main() -> None:
    torch.manual_seed(SEED)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(
        f"RANK {rank} LOCAL_RANK {os.environ['LOCAL_RANK']} GROUP_RANK {os.environ['GROUP_RANK']} "
        f"WORLD_SIZE {world_size}",
        flush=True,
    )
    total = torch.tensor(float(rank))
    dist.all_reduce(total)
    if rank == 0:
        print(f"sum of the ranks {int(total)}", flush=True)

    digits = load_digits()
    pixels = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels))  # the same on every rank: one seed
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:][rank::world_size]
    pixels_NP, labels_N = pixels[train], labels[train]

    model = DistributedDataParallel(nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        loss = nn.functional.cross_entropy(model(pixels_NP), labels_N)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    if rank == 0:
        with torch.no_grad():
            right = model.module(pixels[test]).argmax(dim=1) == labels[test]
        print(f"test accuracy {float(right.float().mean()):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
