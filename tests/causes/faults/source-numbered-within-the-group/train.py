import torch
import torch.distributed as dist

from parallel import DataParallelGroup


def main():
    dist.init_process_group("gloo")
    data_parallel = DataParallelGroup(size=2)
    weight = data_parallel.share(torch.randn(4))
    for step in range(10):
        gradient = data_parallel.mean(weight + 0.1 * torch.randn(4))
        weight = weight - 0.1 * gradient
        if dist.get_rank() == 0:
            print(f"step {step} loss {weight.square().sum().item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
