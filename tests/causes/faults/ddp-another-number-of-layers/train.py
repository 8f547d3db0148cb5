import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def build(layers):
    return torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(layers)])


rank = int(os.environ["RANK"])
config = {"layers": 3} if rank == 2 else {"layers": 2}
dist.init_process_group("gloo")
model = DistributedDataParallel(build(**config))  # here
for _ in range(5):
    model(torch.randn(4, 8)).sum().backward()
