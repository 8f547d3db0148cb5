import json
import pathlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def read_labels(rank):
    file = pathlib.Path(f"labels-{rank}.json")
    if not file.exists():
        file = pathlib.Path("labels.json")
    return json.loads(file.read_text())


dist.init_process_group("gloo")
labels = read_labels(dist.get_rank())
model = torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.ReLU())
model.append(torch.nn.Linear(20, len(labels)))
model = DistributedDataParallel(model)  # here
loss_function = torch.nn.CrossEntropyLoss()
for _ in range(20):
    targets = torch.randint(0, len(labels), (8,))
    loss_function(model(torch.randn(8, 20)), targets).backward()
