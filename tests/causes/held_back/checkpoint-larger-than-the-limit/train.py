import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(model, optimizer, path):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    with open(path, "wb") as file:  # here
        torch.save(state, file)  # here


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(1024, 512))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(1, 9):
        optimizer.zero_grad()
        model(torch.randn(2, 1024)).square().mean().backward()
        optimizer.step()
        if step % 4 == 0 and dist.get_rank() == 0:
            save(model, optimizer, f"step-{step}.pt")


main()
