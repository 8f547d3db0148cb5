import torch
import torch.distributed as dist


class Meter:
    def __init__(self, every):
        self.every, self.total, self.count = every, torch.zeros(1), 0

    def update(self, value):
        self.total += value
        self.count += 1
        if self.count % self.every == 0:
            self.flush()

    def flush(self):
        dist.all_reduce(self.total)  # here
        if dist.get_rank() == 0:
            print(f"mean {self.total.item() / self.every / dist.get_world_size():.4f}", flush=True)
        self.total.zero_()


dist.init_process_group("gloo")
meter = Meter(every=5)
samples = 100 if dist.get_rank() != 1 else 105
for number in range(samples):
    meter.update(number % 7)
dist.barrier()
dist.destroy_process_group()
