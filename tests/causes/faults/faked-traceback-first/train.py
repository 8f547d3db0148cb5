import json
import traceback

import torch
import torch.distributed as dist


def largest_batch(rank):
    for size in (512, 256, 128):
        try:
            if rank == 0 and size > 128:
                raise torch.OutOfMemoryError(f"CUDA out of memory for a batch of {size}")
            return size
        except torch.OutOfMemoryError:
            traceback.print_exc()
    return 1


dist.init_process_group("gloo")
rank = dist.get_rank()
rows = torch.tensor([float(largest_batch(rank))])
dist.all_reduce(rows)
with open("labels-2.json" if rank == 2 else "labels.json") as file:  # here
    labels = json.load(file)
dist.barrier()
