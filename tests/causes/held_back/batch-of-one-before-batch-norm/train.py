import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(7, 14), nn.BatchNorm1d(14), nn.ReLU())
        self.out = nn.Linear(14, 1)

    def forward(self, rows):
        return self.out(self.layers(rows))  # here


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
data = TensorDataset(torch.randn(67, 7))
mine = Subset(data, range(34) if rank == 0 else range(34, 67))
model = DDP(Head())
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(3):
    for (rows,) in DataLoader(mine, batch_size=8):
        optimizer.zero_grad()
        model(rows).mean().backward()  # here
        optimizer.step()
    print(f"epoch {epoch} done on rank {rank}", flush=True)
