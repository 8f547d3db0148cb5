import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 1))  # here
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(30):
        optimizer.zero_grad()
        loss = model.module(torch.randn(16, 8) * (rank + 1)).square().mean()  # here
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
