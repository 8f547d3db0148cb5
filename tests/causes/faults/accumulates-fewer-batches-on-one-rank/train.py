import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

MEMORY_GB = [24, 24, 24, 16]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    accumulate = 4 if MEMORY_GB[rank] >= 24 else 3
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in range(1, 25):
        is_last = batch % accumulate == 0
        with contextlib.nullcontext() if is_last else model.no_sync():
            loss = model(torch.randn(16, 8)).square().mean() / accumulate
            loss.backward()  # here
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
            print(f"rank {rank} batch {batch} loss {loss.item():.4f}", flush=True)
    dist.barrier()  # here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
