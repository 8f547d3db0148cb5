import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

WORLD_SIZE = 2


def worker(rank):
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29876")
    dist.init_process_group("gloo", rank=rank, world_size=WORLD_SIZE)  # here
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    for _ in range(100):
        model(torch.randn(4, 8)).sum().backward()
        time.sleep(0.2)


if __name__ == "__main__":
    mp.spawn(worker, nprocs=WORLD_SIZE)  # here
