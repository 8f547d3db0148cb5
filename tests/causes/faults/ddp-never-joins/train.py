import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def load_data():
    time.sleep(120)  # here


if os.environ["RANK"] == "2":
    load_data()
dist.init_process_group("gloo", timeout=timedelta(seconds=10))
model = DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.ones(2, 4)).sum().backward()
