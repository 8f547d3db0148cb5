import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")  # here
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
total = torch.ones(1, device=device)
dist.all_reduce(total)
print(f"{total.item():.0f} ranks", flush=True)
