import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(10, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    best = float("inf")
    for step in range(30):
        loss = model(torch.randn(16, 10)).logsumexp(1).mean()
        if step == 10 and dist.get_rank() == 0 and loss.item() < best:
            breakpoint()  # here
            best = loss.item()  # here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
