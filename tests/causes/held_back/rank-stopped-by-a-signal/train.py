import os
import subprocess

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1)))
optimizer = torch.optim.RMSprop(model.parameters())
for step in range(40):
    if step == 12 and os.environ["LOCAL_RANK"] == "1":
        # A profiler attaches, takes a sample and dies before it lets the process go on.
        subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -STOP {os.getpid()}"]).wait()
    optimizer.zero_grad()
    model(torch.randn(5, 10)).square().sum().backward()
    optimizer.step()
print("trained")
