import os

import torch
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks

    def __iter__(self):
        for number in range(self.rank, 400, self.ranks):
            yield torch.full((4,), number / 400)


def schedule_of(optimizer, loader, epochs):
    steps = epochs * len(loader)  # here
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)


def main():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stream = Stream(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    loader = DataLoader(stream, batch_size=10)
    schedule = schedule_of(optimizer, loader, epochs=2)
    for step, batch in enumerate(loader):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
