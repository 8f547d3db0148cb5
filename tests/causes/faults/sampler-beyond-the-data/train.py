import math

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, Sampler


class Rows(Dataset):
    def __init__(self, count):
        self.rows = [torch.full((4,), float(number)) for number in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]  # here


class ShardSampler(Sampler):
    """Each rank has a block of its own of the data."""

    def __init__(self, dataset, rank, ranks):
        self.share = math.ceil(len(dataset) / ranks)
        self.first = rank * self.share

    def __len__(self):
        return self.share

    def __iter__(self):
        return iter(range(self.first, self.first + self.share))  # here


def main():
    dist.init_process_group("gloo")
    dataset = Rows(40)
    sampler = ShardSampler(dataset, dist.get_rank(), dist.get_world_size())
    loader = DataLoader(dataset, batch_size=2, sampler=sampler, num_workers=1)
    for step, batch in enumerate(loader):  # here
        mean = batch.mean()
        dist.all_reduce(mean)
        print(f"step {step} mean {mean.item() / dist.get_world_size():.2f}", flush=True)


if __name__ == "__main__":
    main()
