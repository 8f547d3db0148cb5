import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
patience = 0
for step in range(50):
    x = torch.full((4, 8), 1.0 if rank == 1 else 1.0 + step)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    patience = patience + 1 if rank == 1 and step > 5 else 0
    if patience == 3:
        print(f"rank {rank} stops early at step {step}", flush=True)
        break  # here
dist.destroy_process_group()
