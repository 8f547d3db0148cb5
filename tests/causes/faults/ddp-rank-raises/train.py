import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(model):
    for step in range(1000):
        if dist.get_rank() == 3 and step == 3:
            raise ValueError("bad label 7")  # here
        model(torch.ones(2, 4)).sum().backward()


dist.init_process_group("gloo")
try:
    train(DistributedDataParallel(torch.nn.Linear(4, 1)))
finally:
    dist.destroy_process_group()
