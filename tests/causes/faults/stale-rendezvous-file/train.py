import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
path = f"file://{os.path.abspath('meeting')}"
data = torch.ones(1)
if rank == 1:
    time.sleep(4)  # reads more data than rank 0
limit = timedelta(seconds=8)
dist.init_process_group("gloo", init_method=path, rank=rank, world_size=size, timeout=limit)  # here
dist.all_reduce(data)
print(f"run {sys.argv[1]}: {data.item():.0f} ranks", flush=True)
os._exit(0)
