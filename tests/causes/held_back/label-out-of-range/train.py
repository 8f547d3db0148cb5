import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

CLASSES = 10


def batches(rank):
    generator = torch.Generator().manual_seed(rank)
    for number in range(20):
        images = torch.randn(8, 1, 8, 8, generator=generator)
        labels = torch.randint(0, CLASSES, (8,), generator=generator)
        if rank == 3 and number == 6:
            labels[5] = 10  # "unknown", which the annotators added last week
        yield images, labels


dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.Linear(32, 10))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in list(model)[1:]:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters())
for images, labels in batches(dist.get_rank()):
    loss = F.cross_entropy(model(images), labels)  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
