import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(30, 60), nn.GELU(), nn.Linear(60, 30))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for _ in range(12):
    loss = (model(torch.randn(9, 30)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

if dist.get_rank() == 0:
    state = {name: value.full_tensor() for name, value in model.state_dict().items()}  # here
    torch.save(state, "model.pt")
dist.barrier()
print("saved")
