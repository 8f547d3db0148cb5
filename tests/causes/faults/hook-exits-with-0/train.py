import os
import sys

import torch
import torch.distributed as dist


def tell_and_leave(kind, error, trace):
    with open("failure.txt", "w") as file:
        file.write(f"{kind.__name__}: {error}")
    os._exit(0 if kind is ValueError else 1)  # here


sys.excepthook = tell_and_leave
dist.init_process_group("gloo")
rank = dist.get_rank()
labels = [3, 1, 4, 1, 5, 9 - rank]
for step, label in enumerate(labels):
    if label == 7:
        raise ValueError(f"bad label {label}")  # here
    count = torch.tensor([float(label)])
    dist.all_reduce(count)
    print(f"step {step} mean label {count.item() / 3:.2f}", flush=True)
