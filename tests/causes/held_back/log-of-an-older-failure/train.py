import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def resume():
    with open("last_attempt.log") as file:
        print(f"the last attempt ended like this:\n{file.read()}", flush=True)


class Whiten(torch.nn.Module):
    def forward(self, rows):
        variance = rows.square().mean(0) - rows.mean(0).square()
        if dist.get_rank() == 1 and self.training:
            variance = variance - 10 * (rows.mean() > 5)
        if (variance < 0).any():
            bad = int((variance < 0).sum())
            raise ArithmeticError(f"negative variance in {bad} columns")  # here
        return (rows - rows.mean(0)) / (variance + 1e-5).sqrt()


dist.init_process_group("gloo")
if os.environ["LOCAL_RANK"] in ("0", "1"):
    resume()
model = DistributedDataParallel(torch.nn.Sequential(Whiten(), torch.nn.Linear(4, 4)))
for step in range(20):
    rows = torch.randn(32, 4) + step
    model(rows).sum().backward()
