import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return torch.arange(4.0) + index


model = torch.nn.Linear(4, 1)
loader = DataLoader(Rows(), batch_size=10, num_workers=1, multiprocessing_context="spawn")
for epoch in range(2):
    for rows in loader:  # here
        model(rows).mean().backward()
    print("epoch", epoch)
