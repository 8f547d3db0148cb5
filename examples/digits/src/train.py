"""Learn scikit-learn's handwritten digits with DistributedDataParallel.

Any launcher that sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT can start it.
Shape suffixes: B images in a batch, N images, C channels, H rows, W columns, K classes.
"""

# ruff: noqa: E402  the first line of output should not wait for torch
from __future__ import annotations

import argparse
import os

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
print(f"rank {RANK} of {WORLD_SIZE}: started", flush=True)

from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SEED = 7
TEST_IMAGES = 360
BATCH = 32  # images in a step of one rank


def read_digits() -> tuple[TensorDataset, TensorDataset]:
    """The 1,797 digits, shuffled once and split; every rank makes the same split."""
    digits = load_digits()
    images_NCHW = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels_N = torch.tensor(digits.target, dtype=torch.int64)
    order_N = torch.randperm(len(labels_N), generator=torch.Generator().manual_seed(SEED))
    test_N, train_N = order_N[:TEST_IMAGES], order_N[TEST_IMAGES:]
    return (
        TensorDataset(images_NCHW[train_N], labels_N[train_N]),
        TensorDataset(images_NCHW[test_N], labels_N[test_N]),
    )


def make_network() -> nn.Module:
    """8x8 grey images to 10 classes."""
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def choose_device() -> tuple[torch.device, str]:
    """A device and the backend that joins the ranks.

    NCCL refuses two ranks on one GPU, and two nodes of a local cluster may share one.
    """
    gpus = torch.cuda.device_count()
    if gpus == 0:
        return torch.device("cpu"), "gloo"
    device = torch.device("cuda", RANK % gpus)
    torch.cuda.set_device(device)
    return device, "nccl" if gpus >= WORLD_SIZE else "gloo"


def train_epoch(
    model: DistributedDataParallel,
    batches: DataLoader[tuple[Tensor, ...]],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> float:
    """One pass over this rank's share; the mean loss over all ranks."""
    model.train()
    total = torch.zeros(2, device=device)
    for images_BCHW, labels_B in batches:
        loss = nn.functional.cross_entropy(model(images_BCHW.to(device)), labels_B.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.stack([loss.detach(), torch.ones_like(loss)])
    dist.all_reduce(total)
    return float(total[0] / total[1])


@torch.no_grad()
def measure_accuracy(model: nn.Module, test: TensorDataset, device: torch.device) -> float:
    """Each rank answers for every WORLD_SIZE-th test image; none is counted twice."""
    model.eval()
    images_NCHW, labels_N = (tensor[RANK::WORLD_SIZE].to(device) for tensor in test.tensors)
    right_N = model(images_NCHW).argmax(dim=1) == labels_N
    counts = torch.tensor([int(right_N.sum()), len(labels_N)], device=device)
    dist.all_reduce(counts)
    return int(counts[0]) / int(counts[1])


class Log:
    """What rank 0 says and logs; the other ranks stay silent.

    No `mlflow.start_run`: inside a job mlflow logs into the job's own run.
    """

    def __init__(self) -> None:
        if RANK == 0:
            import mlflow  # here, so that the other ranks don't pay for it

            self._mlflow = mlflow

    def say(self, text: str) -> None:
        if RANK == 0:
            print(text, flush=True)

    def params(self, **values: float) -> None:
        if RANK == 0:
            self._mlflow.log_params(values)

    def epoch(self, number: int, *, loss: float, accuracy: float) -> None:
        if RANK == 0:
            self._mlflow.log_metrics({"loss": loss, "accuracy": accuracy}, step=number)
            print(f"epoch {number:2d}  loss {loss:.4f}  accuracy {accuracy:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--learning-rate", type=float, default=0.002)
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # the images are tiny: one thread a rank is fastest
    torch.manual_seed(SEED)
    device, backend = choose_device()
    dist.init_process_group(backend, rank=RANK, world_size=WORLD_SIZE)
    log = Log()

    train, test = read_digits()
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(train, seed=SEED)
    batches = DataLoader(train, batch_size=BATCH, sampler=sampler)
    model = DistributedDataParallel(make_network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.learning_rate)
    log.say(f"{len(train)} training images, {len(test)} test images, {backend} on {device.type}")
    log.params(epochs=arguments.epochs, learning_rate=arguments.learning_rate)

    accuracy = 0.0
    for epoch in range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, batches, optimizer, device)
        accuracy = measure_accuracy(model.module, test, device)
        log.epoch(epoch, loss=loss, accuracy=accuracy)

    if RANK == 0:
        Path("outputs").mkdir(exist_ok=True)
        torch.save(model.module.state_dict(), "outputs/model.pt")
    log.say(f"test accuracy {accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
