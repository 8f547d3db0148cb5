import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(8, 2))
statistics = {"rank": rank, "losses": []}
for _ in range(10):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    statistics["losses"].append(loss.item())
if rank == 0:
    gathered = [None] * dist.get_world_size()
    dist.gather_object(statistics, gathered)  # here
    print(f"losses of all ranks: {gathered}", flush=True)
dist.barrier()
dist.destroy_process_group()
