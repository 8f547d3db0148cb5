"""Learn handwritten digits by DistributedDataParallel, going on where it was stopped."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import mlflow
from torchyard.train import Loop

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def read_data() -> tuple[TensorDataset, TensorDataset]:
    """1,437 images to learn from and 360 to test with, the same ones on every rank."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16.0
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(7))
    train, test = order[360:], order[:360]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    arguments = parser.parse_args()

    gpus = torch.cuda.device_count()
    device = torch.device("cuda", RANK % gpus) if gpus else torch.device("cpu")
    dist.init_process_group("nccl" if gpus >= WORLD_SIZE else "gloo")
    torch.manual_seed(7)
    train, test = read_data()
    batches = DataLoader(train, batch_size=32, sampler=DistributedSampler(train, seed=7))
    network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
    model = DistributedDataParallel(network.to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.learning_rate)

    # Saves a checkpoint every 20 steps, and begins with the last one if there is any.
    loop = Loop({"model": model, "optimizer": optimizer}, save_every=20, keep_last=2)
    for epoch in loop.epochs(arguments.epochs):
        model.train()
        for images, labels in loop.batches(batches):
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if RANK == 0 and loop.step % 5 == 0:
                mlflow.log_metric("loss", loss.item(), step=loop.step)
        model.eval()
        with torch.no_grad():
            images, labels = test.tensors
            accuracy = (network(images.to(device)).argmax(1).cpu() == labels).float().mean().item()
        if RANK == 0:
            mlflow.log_metric("accuracy", accuracy, step=loop.step)
            print(f"epoch {epoch + 1}  accuracy {accuracy:.4f}", flush=True)

    if RANK == 0:
        Path("outputs").mkdir(exist_ok=True)
        torch.save(network.state_dict(), "outputs/model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
