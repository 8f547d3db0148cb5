import socket
import time
import urllib.request

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# Stands for a server that accepts connections and is stuck.
server = socket.create_server(("127.0.0.1", 0))


def report(loss):
    address = f"http://127.0.0.1:{server.getsockname()[1]}/loss/{loss}"
    urllib.request.urlopen(address).read()  # here


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
for step in range(1000):
    loss = model(torch.randn(2, 4)).square().mean()
    loss.backward()
    time.sleep(0.1)
    print(f"step {step} loss {loss.item():.3f}", flush=True)
    if dist.get_rank() == 1 and step == 40:
        report(loss.item())
