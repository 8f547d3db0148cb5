import os

import torch
import torch.distributed as dist
import weights

rank = int(os.environ["RANK"])
weights.fetch(f"weights-{rank}.bin", is_cached=rank != 2)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Bilinear(3, 3, 2))
for _ in range(20):
    model(torch.randn(5, 3), torch.randn(5, 3)).sum().backward()
print("finished")
