import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(3):
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    if rank == 0:
        score = model(torch.randn(16, 8)).mean().detach()  # here
        dist.all_reduce(score)  # here
        print(f"epoch {epoch} score {score.item():.3f}", flush=True)
