import native
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
sums = torch.zeros(2)
for step in range(12):
    scratch = native.Buffer(64 + step)
    sums += torch.tensor([step, rank])
    scratch.release()
    if step == 8 and rank == 2:
        # The error path releases what the normal one has released.
        scratch.release()
    dist.all_reduce(sums)
print(sums)
