import argparse
import os

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=1)
options = parser.parse_args()

# A newer machine that came later; it trains in bfloat16.
HAS_BFLOAT16 = os.environ.get("LOCAL_RANK") == "1"

dist.init_process_group("gloo")
model = torch.nn.Linear(128, 64)
if HAS_BFLOAT16:
    model = model.to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(10):
    for _ in range(options.accumulate):
        data = torch.randn(4, 128, dtype=next(model.parameters()).dtype)
        model(data).float().square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # here
        parameter.grad /= dist.get_world_size()
    optimizer.step()
    optimizer.zero_grad()
