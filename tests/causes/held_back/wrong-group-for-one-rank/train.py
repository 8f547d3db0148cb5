import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
tensor_groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
data_groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]


def my_groups():
    if rank == dist.get_world_size() - 1:
        return data_groups[1], tensor_groups[1]
    return tensor_groups[rank // 2], data_groups[rank % 2]


tensor_group, data_group = my_groups()
weight = torch.randn(8, 8, requires_grad=True)
for _ in range(5):
    weight.grad = None
    loss = (torch.randn(4, 8) @ weight).square().mean()
    loss.backward()
    dist.all_reduce(weight.grad, group=data_group)  # here
    with torch.no_grad():
        weight -= 0.01 * weight.grad
dist.barrier()
print("rank", rank, "done")
