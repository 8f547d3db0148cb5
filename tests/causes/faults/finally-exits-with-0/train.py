import os

import torch
import torch.distributed as dist


def train(rank):
    for step in range(10):
        label = 7 if rank == 2 and step == 3 else 1
        if label == 7:
            raise ValueError(f"bad label {label}")
        count = torch.tensor([float(label)])
        dist.all_reduce(count)
        print(f"step {step} of 10", flush=True)


dist.init_process_group("gloo")
try:
    train(dist.get_rank())
finally:
    # The group's threads hang at exit now and then.
    os._exit(0)
