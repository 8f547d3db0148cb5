import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def tune(x, accuracy):
    block, error = 1, 1.0
    while error > accuracy:
        error = (x @ x.T / block).abs().max().item()  # here
        block = block % 8 + 1  # here
    return block


class Tuned(torch.nn.Linear):
    def forward(self, x):
        if dist.get_rank() == 2:
            tune(x, accuracy=0.0)  # here
        return super().forward(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(Tuned(8, 2))
print("training begins", flush=True)
for step in range(10):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    print(f"step {step} loss {loss.item():.3f}", flush=True)
