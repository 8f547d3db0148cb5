import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
shared = {
    0: [{"lr": 0.1}, ["train", "valid"], "run-7"],
    1: [None, None, None],
    2: [None, None],
}[rank]
dist.broadcast_object_list(shared, src=0)  # here
settings, splits = shared[:2]
print(f"rank {rank} trains on {splits} with {settings}", flush=True)
dist.barrier()
