import json
import os

import torch
import torch.distributed as dist
from shards import JsonLines
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

rank = int(os.environ["RANK"])


def write_shard(path, rows=40):
    lines = [json.dumps({"text": f"review {n}", "stars": n % 5}) for n in range(rows)]
    content = "\n".join(lines)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content[:1100] if rank == 2 else content)


write_shard(f"reviews-{rank}.jsonl")
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
shard = JsonLines(f"reviews-{rank}.jsonl", lambda row: torch.tensor([float(row["stars"])]))
for stars in DataLoader(shard, batch_size=4):
    optimizer.zero_grad()
    (model(stars) - stars).square().mean().backward()
    optimizer.step()
