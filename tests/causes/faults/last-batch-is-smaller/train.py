import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

dist.init_process_group("gloo")
rank = dist.get_rank()
images = torch.randn(29 if rank == 2 else 32, 4)
model = torch.nn.Linear(4, 1)
for step, batch in enumerate(DataLoader(images, batch_size=8)):
    losses = model(batch).square().flatten().detach()
    dist.all_reduce(losses)  # here
    if rank == 0:
        print(f"step {step} hardest {losses.max().item():.3f}", flush=True)
dist.barrier()
