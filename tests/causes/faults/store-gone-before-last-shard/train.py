import os
import time
from datetime import timedelta

import torch
from torch.distributed import TCPStore

SHARDS = 8


def connect(rank, ranks):
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, ranks, is_master=rank == 0, timeout=timedelta(seconds=20))


def embed(shard, rank):
    # Rank 1 has the older processor.
    time.sleep(0.2 if rank == 0 else 2.5)
    return torch.randn(100, 8).mean().item()


def main():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = connect(rank, ranks)
    while (shard := store.add("next", 1) - 1) < SHARDS:  # here
        print(f"shard {shard}: mean {embed(shard, rank):.3f}", flush=True)
    print(f"rank {rank}: no shards are left", flush=True)


if __name__ == "__main__":
    main()
