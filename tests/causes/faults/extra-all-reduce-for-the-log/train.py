import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = model(torch.randn(8, 16)).square().mean()
    if rank == 0 and step % 5 == 4:
        average = loss.detach().clone()
        dist.all_reduce(average)  # here
        print(f"step {step} loss {average.item() / dist.get_world_size():.3f}", flush=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
