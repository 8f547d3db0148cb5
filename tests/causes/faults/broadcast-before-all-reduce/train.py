import torch
import torch.distributed as dist


def reduce_loss(loss):
    dist.all_reduce(loss)  # here
    return loss / dist.get_world_size()


def share_rate(rate):
    dist.broadcast(rate, src=0)  # here
    return rate


dist.init_process_group("gloo")
loss, rate = torch.ones(1), torch.ones(1)
warm_up = {0: 5, 1: 3, 2: 5}[dist.get_rank()]
for step in range(10):
    if step < warm_up:
        loss = reduce_loss(loss)
        rate = share_rate(rate)
    else:
        rate = share_rate(rate)
        loss = reduce_loss(loss)
    print(f"step {step} loss {loss.item():.2f}", flush=True)
