import torch
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    """Scans of 64 x 64 x 64 voxels."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.full((1, 64, 64, 64), float(index))


network = torch.nn.Sequential(torch.nn.AvgPool3d(8), torch.nn.Flatten(), torch.nn.Linear(512, 2))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
for scans in DataLoader(Volumes(), batch_size=8, num_workers=2):  # here
    optimizer.zero_grad()
    network(scans).square().mean().backward()
    optimizer.step()
