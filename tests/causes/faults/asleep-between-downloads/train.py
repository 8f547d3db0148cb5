import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from data import download

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 1))
for step in range(100):
    if rank == 1 and step == 6:
        download("shard-6.bin")
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    print(f"step {step} loss {loss.item():.3f}", flush=True)
