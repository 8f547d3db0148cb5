import torch
from torch.utils.data import DataLoader, TensorDataset, random_split


def loaders(rows, batch_size):
    dataset = TensorDataset(torch.randn(rows, 4), torch.randint(0, 2, (rows,)))
    sizes = [int(0.8 * rows), int(0.1 * rows)]
    train, valid = random_split(dataset, sizes, torch.Generator().manual_seed(0))  # here
    return (
        DataLoader(train, batch_size, shuffle=True),
        DataLoader(valid, batch_size),
    )
