import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))

    def forward(self, tokens, chosen):
        parts = [
            expert(tokens[chosen == n])
            for n, expert in enumerate(self.experts)
            if (chosen == n).any()
        ]
        return torch.cat(parts)


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(Experts())
for step in range(8):
    chosen = torch.tensor([0, 0, 0, 0] if rank == 1 and step == 3 else [0, 1, 0, 1])
    loss = model(torch.randn(4, 8), chosen).square().mean()  # here
    loss.backward()
    print(f"step {step} loss {loss.item():.3f}", flush=True)
