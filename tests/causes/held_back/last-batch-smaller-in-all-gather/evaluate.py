import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self, rank, size):
        self.rows = range(rank, 255, size)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.full((8,), float(self.rows[index]))


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = torch.nn.Linear(8, 3)
answers = []
for batch in DataLoader(Reviews(rank, size), batch_size=16):
    scores = model(batch).detach()
    gathered = [torch.empty_like(scores) for _ in range(size)]
    dist.all_gather(gathered, scores)  # here
    answers.append(torch.cat(gathered))
if rank == 0:
    torch.save(torch.cat(answers), "answers.pt")
dist.destroy_process_group()
