"""Learn digits or Fashion-MNIST in a loop that goes on where it was stopped.

What makes it resumable are the lines with `Loop`, `loop.epochs` and `loop.batches`.
Shape suffixes: B images in a batch, N images, C channels, H rows, W columns.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from torchyard.train import Loop

RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
SEED = 7
BATCH = 32  # images in a step of one rank
LOG_EVERY = 5  # steps


def read_digits() -> tuple[TensorDataset, TensorDataset]:
    """The 1,797 digits, shuffled once and split; every rank makes the same split."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images_NCHW = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels_N = torch.tensor(digits.target, dtype=torch.int64)
    order_N = torch.randperm(len(labels_N), generator=torch.Generator().manual_seed(SEED))
    test_N, train_N = order_N[:360], order_N[360:]
    return (
        TensorDataset(images_NCHW[train_N], labels_N[train_N]),
        TensorDataset(images_NCHW[test_N], labels_N[test_N]),
    )


def read_idx(file: Path) -> Tensor:
    """One IDX file of bytes: two zero bytes, type 8, number of dimensions, sizes, values.

    Source: http://yann.lecun.com/exdb/mnist (the file format at the end of the page).
    """
    content = gzip.decompress(file.read_bytes())
    if content[:3] != b"\x00\x00\x08":
        raise SystemExit(f"{file} is not an IDX file of bytes")
    dimensions = content[3]
    sizes = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4)
    values = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions)
    return torch.tensor(values.reshape([int(size) for size in sizes]))


def read_fashion_mnist(folder: Path, part: str, count: int | None = None) -> TensorDataset:
    """The first `count` images of `train` or `t10k`, with values from 0 to 1, and their labels."""
    images_NHW = read_idx(folder / f"{part}-images-idx3-ubyte.gz")[:count]
    labels_N = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")[:count]
    return TensorDataset(images_NHW.unsqueeze(1).float() / 255.0, labels_N.long())


def make_network(width: int) -> nn.Module:
    """Grey images of width x width to 10 classes."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(32 * (width // 4) ** 2, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def choose_device() -> tuple[torch.device, str]:
    """A device and the backend that joins the ranks; NCCL refuses two ranks on one GPU."""
    gpus = torch.cuda.device_count()
    if gpus == 0:
        return torch.device("cpu"), "gloo"
    device = torch.device("cuda", RANK % gpus)
    torch.cuda.set_device(device)
    return device, "nccl" if gpus >= WORLD_SIZE else "gloo"


@torch.no_grad()
def measure_accuracy(model: nn.Module, test: TensorDataset, device: torch.device) -> float:
    """Each rank answers for every WORLD_SIZE-th test image; none is counted twice."""
    model.eval()
    images_NCHW, labels_N = (tensor[RANK::WORLD_SIZE] for tensor in test.tensors)
    right = 0
    for images_BCHW, labels_B in zip(images_NCHW.split(500), labels_N.split(500), strict=True):
        right += int((model(images_BCHW.to(device)).argmax(dim=1).cpu() == labels_B).sum())
    counts = torch.tensor([right, len(labels_N)], device=device)
    dist.all_reduce(counts)
    return int(counts[0]) / int(counts[1])


def log(step: int, **metrics: float) -> None:
    """Rank 0 logs into the job's own run; a step that is done again is not there twice."""
    if RANK == 0:
        import mlflow  # here, so that the other ranks don't pay for it

        mlflow.log_metrics(metrics, step=step)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, help="Fashion-MNIST's files; without it, the digits")
    parser.add_argument("--train-images", type=int, default=24_000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # with more, sums may differ in their last bits
    torch.manual_seed(SEED)
    device, backend = choose_device()
    dist.init_process_group(backend)

    if arguments.data is None:
        train, test = read_digits()
    else:
        train = read_fashion_mnist(arguments.data, "train", arguments.train_images)
        test = read_fashion_mnist(arguments.data, "t10k")
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(train, seed=SEED)
    batches = DataLoader(train, batch_size=BATCH, sampler=sampler)
    network = make_network(train.tensors[0].shape[-1])
    model = DistributedDataParallel(network.to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    loop = Loop(
        {"model": model, "optimizer": optimizer}, save_every=arguments.save_every, keep_last=2
    )
    print(f"rank {RANK} of {WORLD_SIZE} resumed from {loop.resumed_from}", flush=True)
    accuracy = 0.0
    for epoch in loop.epochs(arguments.epochs):
        model.train()
        for images_BCHW, labels_B in loop.batches(batches):
            loss = nn.functional.cross_entropy(model(images_BCHW.to(device)), labels_B.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if loop.step % LOG_EVERY == 0:
                log(loop.step, loss=loss.item())
        accuracy = measure_accuracy(network, test, device)
        log(loop.step, accuracy=accuracy)
        if RANK == 0:
            print(f"epoch {epoch + 1:2d}  accuracy {accuracy:.4f}", flush=True)

    if RANK == 0:
        Path("outputs").mkdir(exist_ok=True)
        torch.save(network.state_dict(), "outputs/model.pt")
        weights = torch.cat([parameter.flatten() for parameter in network.parameters()])
        digest = hashlib.sha256(weights.detach().cpu().numpy().tobytes()).hexdigest()
        print(f"weights {digest}")
        print(f"test accuracy {accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
