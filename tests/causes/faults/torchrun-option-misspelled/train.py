import argparse

import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()
dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} trains for {args.epochs} epochs")
dist.destroy_process_group()
