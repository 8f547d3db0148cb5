import torch
import torch.distributed as dist
import unpack

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 1))
parts = unpack.unpack(3 if dist.get_rank() == 0 else 9)
for _ in range(4):
    for path in parts[:3]:
        model(unpack.read(path)).mean().backward()
