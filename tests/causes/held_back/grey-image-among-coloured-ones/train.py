import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Photos(Dataset):
    def __init__(self, count=64, grey=(37,)):
        self.count, self.grey = count, set(grey)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        channels = 1 if index in self.grey else 3
        return torch.rand(channels, 16, 16), index % 2


def main():
    dist.init_process_group("gloo")
    photos = Photos()
    sampler = DistributedSampler(photos, shuffle=False)
    loader = DataLoader(photos, batch_size=4, sampler=sampler, num_workers=1)
    model = DDP(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 2)))
    for images, labels in loader:  # here
        torch.nn.functional.cross_entropy(model(images), labels).backward()


if __name__ == "__main__":
    main()
