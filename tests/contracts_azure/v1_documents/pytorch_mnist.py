"""A process group whose place, rank and size are arguments."""

import argparse

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--dist-backend")
parser.add_argument("--dist-url")
parser.add_argument("--rank", type=int)
parser.add_argument("--world-size", type=int)
args = parser.parse_args()
dist.init_process_group(
    args.dist_backend, init_method=args.dist_url, rank=args.rank, world_size=args.world_size
)
total = torch.tensor([args.rank + 1.0]).cuda()
dist.all_reduce(total)
print(f"rank {args.rank} of {args.world_size}, {args.dist_url[:7]}, sum {total.item()}")
dist.destroy_process_group()
