import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(model, path):
    torch.save(model.module.state_dict(), path)  # here


def main():
    config = json.loads(Path("config.json").read_text())
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        Path(config["folder"]).mkdir(exist_ok=True)
    model = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, config["steps"] + 1):
        loss = model(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if rank == 0 and step % config["save_every"] == 0:
            save(model, f"{config['folder']}/step-{step}.pt")
    if rank == 0:
        save(model, config["final"])  # here
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
