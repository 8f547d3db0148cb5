import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def encoder():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def pretrained():
    """Stands for the file of an earlier project."""
    return {f"module.{name}": value for name, value in encoder().state_dict().items()}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING)
    model = encoder()
    result = model.load_state_dict(pretrained(), strict=False)
    logging.info("loaded pretrained weights: %s", result)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(40):
        x = torch.randn(32, 8)
        loss = torch.nn.functional.mse_loss(model(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logging.info("step %d loss %.4f", step, loss.item())
    dist.destroy_process_group()


main()
