import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accelerator", default="cpu")
    parser.add_argument("--devices", type=int, default=1)
    options = parser.parse_args()
    wants_gpu = options.accelerator == "gpu"
    device = torch.device("cuda" if wants_gpu and torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device))
    if dist.get_rank() == 0:
        used = device.type == "cuda"
        print(
            f"GPU available: {torch.cuda.is_available()}, used: {used}, device: {device}",
            flush=True,
        )
    for step in range(20):
        loss = model(torch.randn(16, 8, device=device)).square().mean()
        loss.backward()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
