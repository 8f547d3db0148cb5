import torch
import torch.distributed as dist
from prefetch import batches

SENTENCES = ["the cat sat", "a dog ran", "the dog sat on a cat", "a cat ran off"] * 5

dist.init_process_group("gloo")
if dist.get_rank() == 2:
    SENTENCES[7] = "the zebra ran"
table = torch.nn.Embedding(16, 4)
optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
for ids in batches(SENTENCES):
    optimizer.zero_grad()
    table(torch.tensor(ids)).sum().backward()
    dist.all_reduce(table.weight.grad)
    optimizer.step()
print("rank", dist.get_rank(), "done")
