"""Train the network by DistributedDataParallel; rank 0 logs and saves it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from network import load_images, make_network
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SEED = 7
BATCH = 32  # images in a step of one rank


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=0.002)
    parser.add_argument("--model", type=Path, required=True)
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # the images are tiny: one thread a rank is fastest
    torch.manual_seed(SEED)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = TensorDataset(*load_images(arguments.images))
    print(f"rank {rank} of {dist.get_world_size()}: {len(dataset)} images", flush=True)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset, seed=SEED)
    batches = DataLoader(dataset, batch_size=BATCH, sampler=sampler)
    model = DistributedDataParallel(make_network())
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.learning_rate)
    if rank == 0:
        import mlflow  # here, so that the other rank doesn't pay for it

    for epoch in range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for images_BCHW, labels_B in batches:
            loss = nn.functional.cross_entropy(model(images_BCHW), labels_B)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.stack([loss.detach(), torch.ones_like(loss)])
        dist.all_reduce(total)
        if rank == 0:
            mean = float(total[0] / total[1])
            mlflow.log_metric("loss", mean, step=epoch)
            print(f"epoch {epoch:2d}  loss {mean:.4f}", flush=True)

    if rank == 0:
        arguments.model.mkdir(parents=True, exist_ok=True)
        torch.save(model.module.state_dict(), arguments.model / "model.pt")
    dist.destroy_process_group()
    os._exit(0)  # at its end, torch 2.13 now and then aborts a rank that went well


if __name__ == "__main__":
    main()
