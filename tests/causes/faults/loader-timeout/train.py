import time

import torch
from torch.utils.data import DataLoader, Dataset


def read(index):
    if index == 13:
        time.sleep(60)  # here
    return torch.full((16,), float(index))


class Volumes(Dataset):
    """Scans on a network share."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return read(index)


def main():
    loader = DataLoader(Volumes(), batch_size=4, num_workers=2, prefetch_factor=1, timeout=2)
    mean = 0.0
    for step, batch in enumerate(loader):  # here
        mean += batch.mean().item()
        print(f"step {step} mean {mean / (step + 1):.3f}", flush=True)


if __name__ == "__main__":
    main()
