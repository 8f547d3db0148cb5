import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
rows = 160 if rank == 0 else 192
data = TensorDataset(torch.randn(rows, 8), torch.randn(rows, 1))
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, (x, y) in enumerate(DataLoader(data, batch_size=16)):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()  # here
    optimizer.step()
    print(f"step {step} loss {loss.item():.3f}", flush=True)
dist.barrier()  # here
if rank == 0:
    torch.save(model.module.state_dict(), "model.pt")
