import os
from datetime import timedelta

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port = int(os.environ["MASTER_PORT"])
if rank == 2:
    port = port - 1 if port > 50000 else port + 1  # here
address = f"tcp://{os.environ['MASTER_ADDR']}:{port}"
options = {"rank": rank, "world_size": size, "timeout": timedelta(seconds=10)}
dist.init_process_group("gloo", init_method=address, **options)  # here
total = torch.ones(1)
dist.all_reduce(total)
print(f"{total.item():.0f} ranks", flush=True)
