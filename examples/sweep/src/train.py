"""Learn the digits with the parameters of one trial, in a loop that can be paused.

A trial that ASHA pauses is told to stop; the loop saves, and a promoted trial goes on from there.
Shape suffixes: B images in a batch, N images, C channels, H rows, W columns.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import mlflow
from torchyard.train import Loop

SEED = 7
TEST_IMAGES = 360
BATCH = 32  # images in a step


def read_digits() -> tuple[TensorDataset, tuple[Tensor, Tensor]]:
    """The 1,797 digits, shuffled once and split, the same for every trial."""
    digits = load_digits()
    images_NCHW = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels_N = torch.tensor(digits.target, dtype=torch.int64)
    order_N = torch.randperm(len(labels_N), generator=torch.Generator().manual_seed(SEED))
    test_N, train_N = order_N[:TEST_IMAGES], order_N[TEST_IMAGES:]
    train = TensorDataset(images_NCHW[train_N], labels_N[train_N])
    return train, (images_NCHW[test_N], labels_N[test_N])


def make_network(width: int, dropout: float) -> nn.Module:
    """8x8 grey images to 10 classes."""
    return nn.Sequential(
        nn.Conv2d(1, width, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * width * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


@torch.no_grad()
def measure_accuracy(model: nn.Module, images_NCHW: Tensor, labels_N: Tensor) -> float:
    model.eval()
    return float((model(images_NCHW).argmax(dim=1) == labels_N).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=27)
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # trials share the machine
    torch.manual_seed(SEED)
    train, test = read_digits()
    batches = DataLoader(train, batch_size=BATCH, shuffle=True)
    model = make_network(arguments.width, arguments.dropout)
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.learning_rate, momentum=0.9)

    loop = Loop({"model": model, "optimizer": optimizer}, save_every=len(batches), keep_last=2)
    print(f"resumed from {loop.resumed_from}", flush=True)
    for epoch in loop.epochs(arguments.epochs):
        model.train()
        for images_BCHW, labels_B in loop.batches(batches):
            loss = nn.functional.cross_entropy(model(images_BCHW), labels_B)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = measure_accuracy(model, *test)
        mlflow.log_metric("accuracy", accuracy, step=loop.step)
        print(f"epoch {epoch + 1:2d}  step {loop.step}  accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
