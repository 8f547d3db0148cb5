import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
weights = torch.ones(6)
for step in range(6):
    losses = torch.rand(6) * weights
    if rank == 1 and step == 4:
        losses = torch.from_numpy(np.clip(losses.numpy(), 0.0, np.linspace(0.5, 0.9, 6)))
    dist.all_reduce(losses)  # here
    if rank == 0:
        print(f"step {step} loss {losses.mean().item():.3f}", flush=True)
