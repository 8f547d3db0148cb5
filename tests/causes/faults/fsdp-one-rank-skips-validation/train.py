import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = FullyShardedDataParallel(torch.nn.Linear(8, 8), device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.3f}", flush=True)
rows = torch.randn(0 if rank == 1 else 16, 8)
if len(rows):  # here
    with torch.no_grad():
        print(f"validation {model(rows).mean().item():.3f}", flush=True)  # here
dist.barrier()  # here
