import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def loader_for(rank, ranks, batch_size, **options):
    rows = torch.arange(240, dtype=torch.float32).reshape(60, 4) / 240
    dataset = TensorDataset(rows, rows.sum(1, keepdim=True))
    sampler = DistributedSampler(dataset, num_replicas=ranks, rank=rank)
    return DataLoader(dataset, batch_size, sampler=sampler, **options)  # here
