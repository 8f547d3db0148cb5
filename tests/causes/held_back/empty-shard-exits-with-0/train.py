import sys

import torch
import torch.distributed as dist

FILES = [f"part-{n:02}.bin" for n in range(2)]


def files_of(rank):
    per_rank = {0: FILES[:1], 1: FILES[1:], 2: [], 3: FILES[:1]}
    return per_rank[rank]


def main():
    dist.init_process_group("gloo")
    files = files_of(dist.get_rank())
    if not files:
        print("nothing to do")
        sys.exit(0)  # here
    total = torch.zeros(3)
    for _ in range(40):
        total += torch.rand(3) * len(files)
        dist.all_reduce(total)
        total /= dist.get_world_size()
    print("total", total.tolist())


main()
