import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, last = dist.get_rank(), dist.get_world_size() - 1
stage = torch.nn.Linear(16, 16)
first = 0
for micro_batch in range(4):
    activations = torch.randn(1024, 16)
    if rank == 1:
        dist.recv(activations, src=rank - 1)
    elif rank == last:
        dist.recv(activations, src=first)  # here
    activations = stage(activations).detach()
    if rank < last:
        dist.send(activations, dst=rank + 1)
    print(f"micro-batch {micro_batch} through stage {rank}", flush=True)
