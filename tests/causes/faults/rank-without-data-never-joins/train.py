import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

files = ["a.csv", "", "c.csv"]
mine = files[int(os.environ["RANK"])]
if not mine:
    print("no files, nothing to do", flush=True)
    sys.exit(0)  # here
dist.init_process_group("gloo", timeout=timedelta(seconds=10))  # here
rows = torch.tensor([float(len(mine))])
dist.all_reduce(rows)
print(f"{rows.item():.0f} rows", flush=True)
