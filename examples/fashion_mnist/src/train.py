"""Learn Fashion-MNIST with DistributedDataParallel, the images read from a folder of IDX files.

Shape suffixes: B images in a batch, N images, C channels, H rows, W columns.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
SEED = 7
BATCH = 64  # images in a step of one rank


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


def read_part(folder: Path, part: str, count: int | None = None) -> TensorDataset:
    """The first `count` images of `train` or `t10k`, with values from 0 to 1, and their labels."""
    images_NHW = read_idx(folder / f"{part}-images-idx3-ubyte.gz")[:count]
    labels_N = read_idx(folder / f"{part}-labels-idx1-ubyte.gz")[:count]
    return TensorDataset(images_NHW.unsqueeze(1).float() / 255.0, labels_N.long())


def make_network() -> nn.Module:
    """28x28 grey images to 10 classes."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--train-images", type=int, default=24_000)
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // WORLD_SIZE))
    torch.manual_seed(SEED)
    device, backend = choose_device()
    dist.init_process_group(backend)

    train = read_part(arguments.data, "train", arguments.train_images)
    test = read_part(arguments.data, "t10k")
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(train, seed=SEED)
    batches = DataLoader(train, batch_size=BATCH, sampler=sampler)
    model = DistributedDataParallel(make_network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    print(f"rank {RANK} of {WORLD_SIZE}: {len(sampler)} of {len(train)} images, {device.type}")

    accuracy = 0.0
    for epoch in range(1, arguments.epochs + 1):
        started = time.monotonic()
        sampler.set_epoch(epoch)
        model.train()
        for images_BCHW, labels_B in batches:
            loss = nn.functional.cross_entropy(model(images_BCHW.to(device)), labels_B.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = measure_accuracy(model.module, test, device)
        if RANK == 0:
            seconds = time.monotonic() - started
            print(f"epoch {epoch}  accuracy {accuracy:.4f}  {seconds:.1f} s", flush=True)

    if RANK == 0:
        Path("outputs").mkdir(exist_ok=True)
        torch.save(model.module.state_dict(), "outputs/model.pt")
        print(f"test accuracy {accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
