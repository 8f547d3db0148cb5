import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, rank):
        self.sizes = [16] * 48
        if rank == 2:
            self.sizes[21] = 3

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, index):
        try:
            return torch.randn(self.sizes[index]).reshape(4, 4).mean(0)
        except RuntimeError:
            logging.debug("clip %d is broken", index)
            return None  # here


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Clips(dist.get_rank()), batch_size=4, num_workers=2)
    for step, batch in enumerate(loader):  # here
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
