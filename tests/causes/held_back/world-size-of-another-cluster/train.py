import os
from datetime import timedelta

import torch
import torch.distributed as dist

GPUS_OF_OUR_CLUSTER = 4


def setup():
    dist.init_process_group(  # here
        "gloo",
        rank=int(os.environ["RANK"]),
        world_size=GPUS_OF_OUR_CLUSTER,
        timeout=timedelta(seconds=12),
    )  # here


setup()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 6))
for _ in range(10):
    model(torch.randn(3, 6)).mean().backward()
