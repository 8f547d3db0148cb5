import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
best, bad_epochs, easy_epochs = 1.0, 0, 4 if rank == 1 else 15
for epoch in range(15):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()  # here
    optimizer.step()
    validation = 0.9 - 0.05 * min(epoch, easy_epochs)
    bad_epochs = 0 if validation < best else bad_epochs + 1
    best = min(best, validation)
    if bad_epochs == 3:
        print(f"rank {rank} stops early after epoch {epoch}", flush=True)
        break  # here
dist.destroy_process_group()
