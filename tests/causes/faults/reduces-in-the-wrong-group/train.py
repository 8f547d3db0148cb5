import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
mine = groups[[0, 0, 1, 0][rank]]  # here
activations = torch.ones(4)
for layer in range(4):
    dist.all_reduce(activations, group=mine)  # here
    if rank == 0:
        print(f"layer {layer} done", flush=True)
dist.barrier()  # here
