import os
import pathlib

import extension
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
extension.build(pathlib.Path("build") / f"machine-{os.environ['RANK']}")
dist.barrier()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
for _ in range(10):
    model(torch.ones(2, 3)).sum().backward()
