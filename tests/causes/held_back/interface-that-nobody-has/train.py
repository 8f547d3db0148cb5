import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def setup():
    print("interface", os.environ.get("GLOO_SOCKET_IFNAME"), flush=True)
    dist.init_process_group("gloo")  # here
    torch.manual_seed(17 + dist.get_rank())


setup()
model = DDP(torch.nn.Linear(100, 10))
for _ in range(3):
    model(torch.randn(20, 100)).sum().backward()
dist.destroy_process_group()
