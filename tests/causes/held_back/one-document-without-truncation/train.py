import torch
import torch.distributed as dist
from model import Attention
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
lengths = [120, 80, 256, 44, 90]
if dist.get_rank() == 2:
    lengths[3] = 12_000_000  # all books of a shelf
model = DistributedDataParallel(Attention())
optimizer = torch.optim.Adam(model.parameters())
for length in lengths:
    optimizer.zero_grad()
    model(torch.randn(1, length, 1)).mean().backward()
    optimizer.step()
