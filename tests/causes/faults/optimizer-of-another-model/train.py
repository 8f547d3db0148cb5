import copy

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    network = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    model = DistributedDataParallel(copy.deepcopy(network))
    x, y = torch.randn(64, 8), torch.randn(64, 1)
    for step in range(50):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
