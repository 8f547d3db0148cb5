import subprocess
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def archive(name):
    script = "while [ -e archive.lock ]; do sleep 1; done; touch $0"
    subprocess.run(["sh", "-c", script, name], check=True)  # here


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 4))
for step in range(10):
    model(torch.randn(2, 4)).sum().backward()
    print(f"step {step}", flush=True)
if rank == 2:
    Path("archive.lock").touch()
    archive(f"rank-{rank}.tar")
dist.barrier()
