import torch
import torch.distributed as dist


class Metrics:
    def __init__(self):
        self.sums = {}

    def add(self, name, values):
        values = torch.as_tensor(values, dtype=torch.float32)
        self.sums[name] = self.sums.get(name, torch.zeros_like(values)) + values

    def reduce(self):
        for total in self.sums.values():
            dist.all_reduce(total)  # here
        return {name: total.tolist() for name, total in self.sums.items()}
