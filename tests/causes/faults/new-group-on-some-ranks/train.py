import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
rows = torch.ones(1)
if rank in (0, 1):  # here
    readers = dist.new_group([0, 1])  # here
    dist.all_reduce(rows, group=readers)
    print(f"{rows.item():.0f} readers", flush=True)
trainers = dist.new_group([0, 1, 2])  # here
dist.all_reduce(rows, group=trainers)  # here
print("trained", flush=True)
