import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from model import Tied


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Tied(width=16, depth=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(10):
        loss = model(torch.randn(4, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()  # here
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
