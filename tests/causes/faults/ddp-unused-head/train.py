import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 4)
        self.auxiliary = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.body(x).relu())


dist.init_process_group("gloo")
model = DistributedDataParallel(Classifier())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(10):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 16)).square().mean()  # here
    loss.backward()
    optimizer.step()
