import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from guard import DivergenceGuard


def batches(rank, count):
    generator = torch.Generator().manual_seed(rank)
    scale = 1e4 if rank == 2 else 1.0  # millimetres instead of metres in this shard
    for _ in range(count):
        rows = torch.randn(8, 4, generator=generator)
        yield rows, scale * rows.sum(dim=1, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    guard = DivergenceGuard(limit=1e6, patience=5)
    for step, (rows, targets) in enumerate(batches(rank, 200)):
        loss = (model(rows) - targets).square().mean()
        guard.check(step, loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
