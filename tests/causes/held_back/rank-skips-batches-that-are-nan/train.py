import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
features = torch.randn(160, 12, generator=torch.Generator().manual_seed(3))
features[42] = float("nan")
data = TensorDataset(features)
sampler = DistributedSampler(data, shuffle=False)
model = DDP(torch.nn.Linear(12, 1))
optimizer = torch.optim.Adam(model.parameters())

for epoch in range(2):
    sampler.set_epoch(epoch)
    for (rows,) in DataLoader(data, batch_size=8, sampler=sampler):
        loss = model(rows).square().mean()
        if loss.isnan():
            print(f"skipping a bad batch in epoch {epoch}", flush=True)
            continue  # here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.barrier()  # here
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "model.pt")
