import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
valid = torch.randn(64, 16)


def train_epoch(steps=5):
    model.train()
    for _ in range(steps):
        loss = model(torch.randn(8, 16)).square().mean()  # here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


for epoch in range(4):
    loss = train_epoch()
    if dist.get_rank() == 0:
        model.eval()
        score = model(valid).mean().item()  # here
        print(f"epoch {epoch}: loss {loss:.4f} score {score:.4f}", flush=True)

dist.destroy_process_group()
