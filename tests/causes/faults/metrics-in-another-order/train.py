import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
metrics = {"loss": torch.zeros(1), "confusion": torch.zeros(10, 10)}
resumed = {"confusion": torch.zeros(10, 10), "loss": torch.zeros(1)}
if rank == 1:
    metrics = resumed
for epoch in range(3):
    for value in metrics.values():
        dist.all_reduce(value)  # here
    if rank == 0:
        print(f"epoch {epoch} loss {metrics['loss'].item()}", flush=True)
