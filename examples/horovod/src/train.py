"""Fit a line with Horovod's DistributedOptimizer; every rank sees its own half of the data."""

from __future__ import annotations

import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(7)
x = torch.randn(256, 4)
y = x.sum(1, keepdim=True)
part = slice(hvd.rank(), None, hvd.size())

torch.manual_seed(hvd.rank())  # every rank begins elsewhere: the broadcast makes them one
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
for _step in range(60):
    optimizer.zero_grad()
    loss = (model(x[part]) - y[part]).pow(2).mean()
    loss.backward()
    optimizer.step()

mean = hvd.allreduce(loss.detach(), name="loss").item()
if hvd.rank() == 0:
    print(f"{hvd.size()} ranks, loss {mean:.6f}")
hvd.shutdown()
