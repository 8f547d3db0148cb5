import os
from datetime import timedelta

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])  # here
size = int(os.environ["WORLD_SIZE"])
limit = timedelta(seconds=10)
dist.init_process_group("gloo", rank=rank, world_size=size, timeout=limit)  # here
total = torch.ones(1)
dist.all_reduce(total)
print(f"{total.item():.0f} ranks", flush=True)
