import os
import sys


def init_distributed_mode(args):
    if "SLURM_PROCID" in os.environ:
        args.rank = int(os.environ["SLURM_PROCID"])
        args.world_size = int(os.environ["SLURM_NTASKS"])
    else:
        print("SLURM_PROCID is not set: start this by srun. Will not run the code.")
        sys.exit(1)  # here
    print(f"| distributed init (rank {args.rank})", flush=True)
