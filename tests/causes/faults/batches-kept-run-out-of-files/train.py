import torch
from torch.utils.data import DataLoader, Dataset


class Features(Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, index):
        return torch.full((32,), float(index)), index % 10


def collect(loader):
    features, labels = [], []
    for step, (x, y) in enumerate(loader):  # here
        features.append(x)
        labels.append(y)
        if step % 10 == 0:
            print(f"collected {len(features)} batches", flush=True)
    return torch.cat(features), torch.cat(labels)


if __name__ == "__main__":
    x, y = collect(DataLoader(Features(), batch_size=4, num_workers=2))
    print(f"{len(x)} features of {len(y.unique())} classes", flush=True)
