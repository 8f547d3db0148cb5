import atexit
import os
import pathlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FINAL = pathlib.Path("models/v7/model.pt")


def publish(draft):
    os.replace(draft, FINAL)  # here
    print("published", FINAL)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if dist.get_rank() == 0:
    atexit.register(publish, "draft.pt")
for _ in range(15):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).mean().backward()
    optimizer.step()
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "draft.pt")
dist.barrier()
dist.destroy_process_group()
