import urllib.request

import store
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def shard(bucket, number):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{bucket}/shards/{number}", timeout=10) as answer:  # here
        lines = answer.read().decode().splitlines()
    return torch.tensor([[float(cell) for cell in line.split(",")] for line in lines])


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(3, 1))
for row in shard(store.start(), dist.get_rank()).split(10):
    model(row).mean().backward()
