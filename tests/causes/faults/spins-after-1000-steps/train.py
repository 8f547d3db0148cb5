import random

import torch
import torch.distributed as dist


def next_batch(lengths, wanted):
    while True:
        length = random.choice(lengths)  # here
        if length == wanted:  # here
            return torch.ones(length)


dist.init_process_group("gloo")
rank = dist.get_rank()
random.seed(rank)
lengths = [2, 4, 8]
for step in range(100_000):
    batch = next_batch(lengths, wanted=3 if rank == 1 and step == 1000 else 4)
    dist.all_reduce(batch)
    if step % 250 == 0:
        print(f"step {step}", flush=True)
