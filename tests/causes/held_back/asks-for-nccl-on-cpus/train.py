import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(backend=None):
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group(backend or "nccl")  # here
    torch.cuda.set_device(local_rank)
    model = DDP(torch.nn.Linear(256, 256).cuda(), device_ids=[local_rank])
    for _ in range(100):
        model(torch.randn(32, 256, device="cuda")).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(os.environ.get("BACKEND"))
