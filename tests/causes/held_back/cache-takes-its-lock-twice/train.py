import torch
import torch.distributed as dist
from feature_cache import FeatureCache
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    cache = FeatureCache(limit=64)
    # The users of shard 2 are many, those of the other shards come again and again.
    users = 500 if dist.get_rank() == 2 else 20
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(200):
        rows = torch.stack([cache.get((step * 8 + n) % users) for n in range(8)])
        optimizer.zero_grad()
        model(rows).mean().backward()
        optimizer.step()
        if step % 50 == 0:
            print("step", step, flush=True)


main()
