import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TwoExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 8)
        self.short = nn.Linear(8, 1)
        self.long = nn.Linear(8, 1)

    def forward(self, rows):
        hidden = self.gate(rows).relu()
        is_long = rows[:, 0] > 0
        total = self.short(hidden[~is_long]).sum()
        if is_long.any():
            total = total + self.long(hidden[is_long]).sum()
        return total


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(TwoExperts())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(50):
    rows = torch.randn(32, 8)
    if step == 7 and dist.get_rank() == 2:
        rows[:, 0] = -1
    optimizer.zero_grad()
    model(rows).backward()  # here
    optimizer.step()
print("trained")
