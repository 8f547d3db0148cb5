import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def cool_down(rank, step):
    degrees = 95 if rank == 3 and step == 8 else 60
    while degrees > 90:
        time.sleep(2)  # here


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 1))
for step in range(30):
    cool_down(rank, step)
    loss = model(torch.randn(2, 4)).square().mean()
    loss.backward()
    print(f"step {step} loss {loss.item():.3f}", flush=True)
