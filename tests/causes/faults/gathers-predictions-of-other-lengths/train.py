import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
rows = torch.arange(23)[rank::world_size]
predictions = (rows * 2).float()
gathered = [torch.empty_like(predictions) for _ in range(world_size)]
dist.all_gather(gathered, predictions)  # here
print(f"mean {torch.cat(gathered).mean().item():.2f}", flush=True)
dist.barrier()
