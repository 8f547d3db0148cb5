import atexit
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def upload_profile(rank):
    pending = rank == 1
    while pending:
        time.sleep(1)  # here


dist.init_process_group("gloo")
atexit.register(upload_profile, dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 1))
for step in range(10):
    model(torch.randn(2, 4)).sum().backward()
    print(f"step {step}", flush=True)
dist.destroy_process_group()
print("training is done", flush=True)
