import fcntl

import torch.distributed as dist


def open_cache(name):
    file = open(name, "a")
    fcntl.flock(file, fcntl.LOCK_EX)  # here
    return file


dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    dist.barrier()
cache = open_cache("cache-2.lock" if rank == 2 else "cache.lock")
cache.write(f"rank {rank}\n")
cache.flush()
if rank != 1:
    dist.barrier()
print(f"rank {rank} has its cache", flush=True)
dist.barrier()
cache.close()
