import time
from datetime import timedelta

import torch
import torch.distributed as dist


def evaluate(rows):
    correct = 0
    for number in range(rows):
        time.sleep(0.02)  # here
        correct += number % 3 == 0
    return correct / rows


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    weight = torch.ones(4)
    for step in range(60):
        gradient = 0.1 * weight + 0.01 * torch.randn(4)
        dist.all_reduce(gradient)  # here
        weight -= gradient
        time.sleep(0.02)
        if dist.get_rank() == 0:
            print(f"step {step} loss {weight.square().sum().item():.4f}", flush=True)
            if step == 30:
                print(f"accuracy {evaluate(rows=2000):.3f}", flush=True)  # here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
