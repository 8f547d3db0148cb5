import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, count, transform):
        self.images = torch.randint(0, 256, (count, 3, 8, 8))
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index])


def build(mean, std):
    return Images(64, transform=lambda image: (image / 255 - mean) / std)  # here


def main():
    dataset = build(mean=0.45, std=0.22)
    loader = DataLoader(dataset, batch_size=8, num_workers=2, multiprocessing_context="spawn")
    for step, batch in enumerate(loader):  # here
        print(f"step {step} mean {batch.mean().item():.3f}", flush=True)


if __name__ == "__main__":
    main()
