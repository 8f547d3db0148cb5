import checkpoints
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(32, 32))
optimizer = torch.optim.AdamW(model.parameters())

for step in range(1, 101):
    optimizer.zero_grad()
    loss = model(torch.randn(16, 32)).pow(2).mean()
    loss.backward()
    optimizer.step()
    if step % 20 == 0 and dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        checkpoints.save(model, step)
dist.destroy_process_group()
