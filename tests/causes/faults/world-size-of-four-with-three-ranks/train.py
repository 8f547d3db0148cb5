import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--world-size", type=int, default=4)
size = parser.parse_args().world_size
rank, limit = int(os.environ["RANK"]), timedelta(seconds=10)
dist.init_process_group("gloo", rank=rank, world_size=size, timeout=limit)  # here
total = torch.ones(1)
dist.all_reduce(total)
print(f"{total.item():.0f} ranks", flush=True)
