import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
weights = torch.full((1 << 20,), float(rank))
scores = [[0.91, 0.88, 0.86], [0.91, 0.88, 0.86], [0.91, 0.88, 0.95]]
for generation in range(3):
    seen = scores[0] if generation == 0 else scores[rank]
    best = max(range(3), key=seen.__getitem__)  # here
    dist.broadcast(weights, src=best)  # here
    print(f"generation {generation} weights of {int(weights[0])}", flush=True)
    dist.barrier()
